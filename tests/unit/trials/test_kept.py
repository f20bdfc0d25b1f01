"""A trial whose folder is the working copy of a storage: any machine can go on with it."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import AwayError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.storage import remote as remote_module
from fedcome_ray.storage.lease import Lease
from fedcome_ray.storage.remote import Remote
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials import run as trials
from fedcome_ray.trials.folder import (
    CHECKPOINT,
    RESULT,
    TRIALS,
    kept_copy,
    read_result,
    read_rounds,
    verified,
)
from fedcome_ray.trials.run import TrialRun
from tests.s3 import Server


class CrashError(Exception):
    """Nothing of ours may catch it."""


class Crashing(Remote):
    """Dies before one of its writes, counted file by file."""

    def __init__(self, address: str, writes: int) -> None:
        super().__init__(address)
        self.__dict__["left"] = writes

    def put(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._count()
            super().put({name: path})

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._count()
            super().delete([name])

    def _count(self) -> None:
        if self.__dict__["left"] == 0:
            raise CrashError
        self.__dict__["left"] -= 1


@pytest.fixture(scope="module")
def trial() -> Trial:
    settings: dict[str, Any] = {
        "data": {"dataset": "digits", "num_clients": 10},
        "model": {"name": "mlp", "hidden": [8]},
        "method": {"name": "scaffold"},
        "cohort_size": 4,
        "rounds": 6,
    }
    return parse_trial(settings)


@pytest.fixture(scope="module")
def population(trial: Trial) -> Population:
    return datasets.load(trial.data)


def begin(trial: Trial, population: Population, copy: WorkingCopy) -> TrialRun:
    copy.pull()
    shards = LocalShards(trial, population, 1)
    return TrialRun(trial, population, shards, copy.folder, kept=copy)


def run_all(run: TrialRun) -> None:
    """With a checkpoint after the second and the fourth round."""
    while not run.is_finished:
        run.advance(0)
        if run.rounds_done in {2, 4} and run.rounds_done > run.num_restored:
            run.checkpoint()
    run.finish()


@pytest.fixture(scope="module")
def expected(trial: Trial, population: Population, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("alone")
    run = TrialRun(trial, population, LocalShards(trial, population, 1), folder)
    run_all(run)
    return _params_of(folder)


def _params_of(folder: Path) -> str:
    result = read_result(folder)
    assert result is not None
    assert all(verified(folder, name).exists() for name in result.checksums)
    return result.params_sha256


# Settings, history, checkpoint; history, checkpoint; history, model, two tables, result; and the
# checkpoint is deleted.
WRITES = 3 + 2 + 5 + 1


@pytest.mark.parametrize("writes", range(WRITES + 1))
def test_a_crash_before_any_write_leaves_a_state_to_go_on_from(
    trial: Trial, population: Population, tmp_path: Path, expected: str, writes: int
) -> None:
    address, last = (tmp_path / "there").as_uri(), (CHECKPOINT, RESULT)
    here = WorkingCopy(Crashing(address, writes), tmp_path / "one", last)
    crash = pytest.raises(CrashError) if writes < WRITES else nullcontext()
    with crash:
        run_all(begin(trial, population, here))
    if RESULT not in Remote(address).marks():
        run = begin(trial, population, WorkingCopy(Remote(address), tmp_path / "two", last))
        assert run.num_restored == (0 if writes < 3 else 2 if writes < 5 else 4)
        run_all(run)
    third = WorkingCopy(Remote(address), tmp_path / "three", last)
    third.pull()
    assert _params_of(third.folder) == expected
    assert [one.number for one in read_rounds(third.folder)] == list(range(7))


def test_a_checkpoint_costs_three_requests(
    s3: Server, trial: Trial, population: Population, tmp_path: Path
) -> None:
    lease = Lease(Remote(f"s3://bucket/{tmp_path.name}"), 1)
    copy = kept_copy(tmp_path / trial.folder_name, lease)
    run = begin(trial, population, copy)
    run.advance(0)
    run.checkpoint()
    run.advance(0)
    before = len(s3.requests())
    run.checkpoint()
    place = f"/bucket/{tmp_path.name}/{TRIALS}/{trial.folder_name}"
    asked = [one for one in s3.requests()[before:] if not one.startswith("HEAD")]
    assert asked[-2:] == [f"PUT {place}/rounds.jsonl", f"PUT {place}/{CHECKPOINT}"]
    assert set(asked[:-2]) == {"GET /bucket"}  # is the lease still its own


def test_a_server_that_is_away_does_not_stop_rounds(
    s3: Server,
    trial: Trial,
    population: Population,
    tmp_path: Path,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(trials, "CHECKPOINT_SHARE", 1e9)
    monkeypatch.setattr(remote_module, "PATIENCE_SECONDS", 0.0)
    lease = Lease(Remote(f"s3://bucket/{tmp_path.name}"), 1)
    copy = kept_copy(tmp_path / trial.folder_name, lease)
    run = begin(trial, population, copy)
    with s3.away():
        while not run.is_finished:
            run.advance(0)
        with pytest.raises(AwayError, match="Could not connect"):
            run.finish()
    assert lease.remote.marks(TRIALS) == {}
    run.finish()
    other = kept_copy(tmp_path / "other" / trial.folder_name, lease)
    other.pull()
    assert _params_of(other.folder) == expected
