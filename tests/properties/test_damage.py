"""A damaged byte in any file of a trial: the same numbers, or a line that says what to delete."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedcome_ray import datasets, results
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.trials.run import TrialRun
from tests.leftovers import run_untracked

TRIAL = parse_trial(
    {
        "data": {"dataset": "digits", "num_clients": 10},
        "model": {"name": "mlp", "hidden": [4]},
        "method": {"name": "scaffold"},
        "sampler": {"name": "similarity"},
        "cohort_size": 3,
        "rounds": 4,
        "eval_every": 2,
    }
)
some = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
places = st.floats(0, 1, exclude_max=True)
masks = st.integers(1, 255)


def numbers(output: Path) -> Any:
    """All that is read from what a trial leaves."""
    found = results(output)[TRIAL.key]
    rounds = found.rounds.drop(columns=[n for n in found.rounds if "seconds" in n])
    return (
        found.trial,
        found.final,
        rounds.to_json(double_precision=15),
        found.clients.to_json(double_precision=15),
        found.params.numpy().tobytes(),
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished")
    run_untracked(TRIAL, output)
    return output


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial that was killed in its third round, and has a checkpoint of its second."""
    output = tmp_path_factory.mktemp("begun")
    population = datasets.load(TRIAL.data)
    folder = output / "trials" / TRIAL.folder_name
    killed = TrialRun(TRIAL, population, LocalShards(TRIAL, population), folder)
    for _ in range(3):
        killed.advance(0)
    killed.checkpoint()
    killed.advance(0)
    return output


def damage(output: Path, where: Path, data: st.DataObject) -> None:
    """A copy, with one byte of one file changed."""
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(where, output)
    files = sorted(path for path in output.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(files))
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[int(data.draw(places) * len(content))] ^= data.draw(masks)
    path.write_bytes(content.tobytes())


def told_to_delete(error: FedcomeError) -> Path:
    """What a complaint names; one line says what is wrong, and what to do."""
    told = re.fullmatch(r"(.*) is damaged.*; delete (.*) to (start|run) the trial .*", str(error))
    assert told, str(error)
    return Path(told[1] if told[2] == "it" else told[2])


def run_as_told(output: Path) -> Any:
    """Run and read; if that is refused, delete what is named, and do it again."""
    try:
        run_untracked(TRIAL, output)
        return numbers(output)
    except FedcomeError as error:
        path = told_to_delete(error)
    assert path.is_relative_to(output / "trials")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    run_untracked(TRIAL, output)
    return numbers(output)


@some
@given(st.data())
def test_a_finished_trial_with_a_damaged_byte(
    finished: Path, tmp_path: Path, data: st.DataObject
) -> None:
    damage(tmp_path / "damaged", finished, data)
    assert run_as_told(tmp_path / "damaged") == numbers(finished)


@some
@given(st.data())
def test_a_trial_under_way_with_a_damaged_byte(
    begun: Path, finished: Path, tmp_path: Path, data: st.DataObject
) -> None:
    damage(tmp_path / "damaged", begun, data)
    assert run_as_told(tmp_path / "damaged") == numbers(finished)
