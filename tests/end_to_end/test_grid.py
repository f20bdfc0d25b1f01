"""A grid through the command line: results, MLflow, failures, interruption, resume."""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from fedcome_ray.trials.folder import read_rounds
from tests import chaos
from tests.end_to_end.commands import run, start

pytestmark = [
    pytest.mark.ray,
    # MLflow's own use of SQLAlchemy and others.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

ROUNDS = 8
LONG = 200
GRID: dict[str, Any] = {
    "description": "Three methods, one of which diverges.",
    "base": {
        "data": {"dataset": "digits", "num_clients": 20},
        "local": {"epochs": 2, "batch_size": 8},
        "participation": 0.5,
        "rounds": ROUNDS,
    },
    "axes": {
        "method": [{"name": "fedavg"}, {"name": "scaffold"}, {"name": "fedcome"}],
        "seed": [0],
    },
    "profiles": {"quick": {}},
}


def write_grid(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**GRID, **changes}, sort_keys=False))
    return path


def tune(grid: Path, output: Path, *more: str) -> Any:
    return run("fedcome_ray.tune", "--grid", str(grid), "--output", str(output), *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grid")


@pytest.fixture(scope="module")
def first(folder: Path) -> Any:
    """A launch with a trial that fails: the local rate of one case is absurd."""
    cases = [{"local.lr": 0.1}, {"local.lr": 1e30, "method": {"name": "fedavg"}}]
    axes = {**GRID["axes"], "case": cases}
    more = ("--timing", "--system-metrics")
    return tune(write_grid(folder, axes=axes), folder / "results", *more)


@pytest.fixture(scope="module")
def store(first: Any, folder: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder / 'results' / 'mlflow.db'}")


@pytest.fixture(scope="module")
def runs(store: Any) -> list[Any]:
    experiment = store.get_experiment_by_name("small")
    return list(store.search_runs([experiment.experiment_id]))


def trials_of(runs: list[Any]) -> list[Any]:
    return [run for run in runs if run.data.tags["fedcome.kind"] == "trial"]


def test_a_failed_trial_does_not_stop_the_grid_and_is_named(first: Any, folder: Path) -> None:
    assert first.returncode == 1
    assert "failed fedavg-digits-p0.5-random-s0-lr=1e+30: round 1: the updates" in first.stdout
    finished = list((folder / "results" / "trials").glob("*/result.json"))
    assert len(finished) == 3
    log = next((folder / "results" / "trials").glob("*/trial.log"))
    assert "DivergenceError" in log.read_text()


def test_the_end_shows_the_table_what_made_it_and_where_the_time_went(first: Any) -> None:
    assert "Test accuracy, %" in first.stdout
    assert "digits, 8 rounds, 1 seed(s), 3 of 4 trials" in first.stdout
    assert "python -m fedcome_ray.ui --output" in first.stdout
    assert "Traceback" not in first.stdout + first.stderr


def test_every_trial_has_a_flat_run_with_every_round_once(store: Any, runs: list[Any]) -> None:
    finished = [run for run in trials_of(runs) if run.info.status == "FINISHED"]
    assert len(finished) == 3
    for run_ in finished:
        for metric in ("accuracy/test", "accuracy/worst_decile", "loss/test", "seconds/train"):
            history = store.get_metric_history(run_.info.run_id, metric)
            first = 1 if metric == "seconds/train" else 0  # the initial model is only evaluated
            assert sorted(point.step for point in history) == list(range(first, ROUNDS + 1))
        assert run_.data.metrics["system/peak_memory_mb"] > 50
    fedcome = next(run for run in finished if run.data.params["method.name"] == "fedcome")
    assert fedcome.data.metrics["conflicts/before"] > 0
    assert fedcome.data.metrics["conflicts/after"] == 0


def test_runs_say_what_produced_them(runs: list[Any]) -> None:
    for run_ in trials_of(runs):
        tags, params = run_.data.tags, run_.data.params
        assert tags["fedcome.grid"] == "small"
        assert tags["fedcome.profile"] == "quick"
        assert tags["fedcome.commit"]
        assert tags["fedcome.version.torch"]
        assert len(tags["fedcome.trial_key"]) == 12
        assert params["data.dataset"] == "digits"
        assert params["participation"] == "0.5"


def test_the_failed_trial_is_marked_as_failed(runs: list[Any]) -> None:
    failed = [run for run in trials_of(runs) if run.info.status == "FAILED"]
    assert [run.data.params["local.lr"] for run in failed] == ["1e+30"]


def test_a_launch_leaves_a_run_of_its_own(store: Any, runs: list[Any]) -> None:
    (launch,) = [run for run in runs if run.data.tags["fedcome.kind"] == "launch"]
    assert launch.data.metrics["launch/finished"] == 3
    assert launch.data.metrics["launch/failed"] == 1
    assert {a.path for a in store.list_artifacts(launch.info.run_id)} >= {"results.txt"}


def test_artifacts_hold_config_clients_and_model(store: Any, runs: list[Any]) -> None:
    run_ = next(run for run in trials_of(runs) if run.info.status == "FINISHED")
    names = {artifact.path for artifact in store.list_artifacts(run_.info.run_id)}
    assert names >= {"trial.json", "rounds.jsonl", "clients.parquet", "model.safetensors"}
    clients = pd.read_parquet(store.download_artifacts(run_.info.run_id, "clients.parquet"))
    assert len(clients) == (1 + ROUNDS) * 20
    assert clients["test_accuracy"].between(0, 1).all()


def test_an_extended_grid_runs_only_what_is_new(first: Any, folder: Path, store: Any) -> None:
    stamps = {p: p.stat().st_mtime_ns for p in (folder / "results").glob("trials/*/result.json")}
    axes = {**GRID["axes"], "seed": [0, 1], "method": [{"name": "fedavg"}]}
    again = tune(write_grid(folder, axes={**axes, "local.lr": [0.1]}), folder / "results")
    assert again.returncode == 0
    assert "1 finished, 1 to run" in again.stderr
    assert "2 of 2 trials" in again.stdout
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_a_second_store_gets_what_was_finished_before(first: Any, folder: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{folder / 'second.db'}"
    axes = {"method": [{"name": "scaffold"}], "seed": [0], "local.lr": [0.1]}
    mirrored = tune(write_grid(folder, axes=axes), folder / "results", "--tracking-uri", uri)
    assert mirrored.returncode == 0
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    (run_,) = trials_of(list(client.search_runs([experiment.experiment_id])))
    assert len(client.get_metric_history(run_.info.run_id, "accuracy/test")) == 1 + ROUNDS


@pytest.fixture(scope="module")
def long_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    local = {"epochs": 100, "batch_size": 4}  # rounds are told every second, which must be few
    base = {**GRID["base"], "rounds": LONG, "eval_every": 4, "local": local}
    axes = {"method": [{"name": "scaffold"}], "seed": [0]}
    return write_grid(tmp_path_factory.mktemp("long"), base=base, axes=axes)


@pytest.fixture(scope="module")
def undisturbed(long_grid: Path) -> tuple[Any, list[Any]]:
    output = long_grid.parent / "undisturbed"
    assert tune(long_grid, output).returncode == 0
    return final(output)


@pytest.mark.timeout(1200)  # three launches, which a busy machine takes its time for
@pytest.mark.parametrize(
    ("how", "send"),
    [
        (signal.SIGINT, os.kill),
        (signal.SIGTERM, os.kill),
        (signal.SIGKILL, os.kill),
        (signal.SIGTERM, os.killpg),  # as batch systems do it: Ray's processes die at once
    ],
)
def test_an_interrupted_grid_goes_on_to_the_same_numbers(
    how: signal.Signals,
    send: Callable[[int, int], None],
    long_grid: Path,
    undisturbed: tuple[Any, list[Any]],
) -> None:
    from mlflow import MlflowClient

    output = long_grid.parent / f"{send.__name__}-{how.name}"
    process = start("fedcome_ray.tune", "--grid", str(long_grid), "--output", str(output))
    wait_for_rounds(output, 5)
    send(process.pid, how)
    said, _ = process.communicate(timeout=120)
    if how != signal.SIGKILL:
        assert process.returncode == 1
        assert "the same command goes on" in said
    if send is os.kill and how != signal.SIGKILL:
        assert "stopping: trials write checkpoints" in said
    assert not list(output.glob("trials/*/result.json"))

    assert tune(long_grid, output).returncode == 0
    assert final(output) == undisturbed
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    (run_,) = trials_of(list(client.search_runs([experiment.experiment_id])))
    steps = [m.step for m in client.get_metric_history(run_.info.run_id, "seconds/round")]
    assert sorted(steps) == list(range(1 + LONG))
    assert run_.info.status == "FINISHED"


def wait_for_rounds(output: Path, count: int) -> None:
    end = time.monotonic() + chaos.PATIENCE
    while time.monotonic() < end:
        folders = list(output.glob("trials/*"))
        if folders and len(read_rounds(folders[0])) >= count:
            return
        time.sleep(0.1)
    raise AssertionError("no rounds were run")


def final(output: Path) -> tuple[Any, list[Any]]:
    (result,) = output.glob("trials/*/result.json")
    lines = read_rounds(result.parent)
    content = json.loads(result.read_text())
    metrics = [{k: v for k, v in line.metrics.items() if "seconds" not in k} for line in lines]
    return content["params_sha256"], metrics


def test_a_grid_starts_from_given_params(tmp_path: Path) -> None:
    given = np.linspace(-0.1, 0.1, 64 * 64 + 64 + 64 * 10 + 10, dtype=np.float32)
    save_file({"params": given}, tmp_path / "start.safetensors")
    words = ["--axis", "seed=0,1", "--set", "rounds=1", "--set", "local.lr=1e-12", "--json"]
    start = ["--init-model", str(tmp_path / "start.safetensors")]
    said = run("fedcome_ray.tune", *words, *start, "--output", str(tmp_path / "out"))
    assert said.returncode == 0, said.stderr
    folders = list((tmp_path / "out" / "trials").iterdir())
    digests = {json.loads((one / "trial.json").read_text())["init_digest"] for one in folders}
    assert digests == {hashlib.sha256(given.tobytes()).hexdigest()}
    for folder in folders:
        ended = load_file(folder / "model.safetensors")["params"]
        np.testing.assert_allclose(ended, given, atol=1e-6)

    other = [*start, "--set", "model.hidden=[8]", "--output", str(tmp_path / "none")]
    refused = run("fedcome_ray.tune", *words, *other)
    assert refused.returncode == 2
    assert "the file has params of shape [4810], the model `mlp` needs [610]" in refused.stderr
