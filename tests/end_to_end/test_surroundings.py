"""What may happen around a trial: one line says what is wrong, and the same command mends it.

The command runs in this process, which saves the seconds that MLflow takes to import.
"""

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcome_ray.run import main
from fedcome_ray.tracking import tracker
from fedcome_ray.trials import run as trials
from fedcome_ray.trials.folder import read_rounds
from tests.end_to_end.commands import run
from tests.end_to_end.disks import SmallDisk, read_only, small_disk
from tests.leftovers import bits, rounds_in_mlflow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDS = 40
SETTINGS = [
    *("data.num_clients=10", "model.hidden=[8]", "method.name=scaffold", "sampler.name=similarity"),
    *("participation=0.5", f"rounds={ROUNDS}"),
]
MIRRORED = [("FINISHED", list(range(ROUNDS + 1)))]
Said = tuple[int, list[str]]  # exit code and what was said on stderr beside progress
Command = Callable[..., Said]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after every round, and no patience with MLflow."""
    monkeypatch.setattr(trials, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(trials, "CHECKPOINT_SHARE", float("inf"))
    monkeypatch.setattr(tracker, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(output: Path, *arguments: str) -> Said:
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        code = main([*settings, "--output", str(output), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        starts = ("failed: ", "error: ", "MLflow: ")
        return code, [line for line in (out + err).splitlines() if line.startswith(starts)]

    return command


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    output = tmp_path_factory.mktemp("undisturbed")
    assert main([*(f"--set={setting}" for setting in SETTINGS), "--output", str(output)]) == 0
    assert rounds_in_mlflow(f"sqlite:///{output / 'mlflow.db'}", "run") == MIRRORED
    return bits(output)


def check_completes(command: Command, output: Path, undisturbed: Any) -> None:
    assert command(output) == (0, [])
    assert bits(output) == undisturbed
    assert rounds_in_mlflow(f"sqlite:///{output / 'mlflow.db'}", "run") == MIRRORED


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with small_disk(tmp_path_factory.mktemp("disk")) as disk:
        yield disk


# Then a folder is being made, settings, a checkpoint, a table, MLflow's store, a round in it.
@pytest.mark.parametrize("kilobytes", [0, 4, 16, 60, 400, 1100])
def test_a_disk_may_fill_up_at_any_moment(
    kilobytes: int, disk: SmallDisk, command: Command, undisturbed: Any
) -> None:
    output = disk.folder / f"left-{kilobytes}"
    with disk.left(1024 * kilobytes):
        code, said = command(output)
    assert code != 0
    assert len(said) == 1
    assert str(output) in said[0]
    check_completes(command, output, undisturbed)
    shutil.rmtree(output)


def test_an_output_that_cannot_be_written_to_is_refused(tmp_path: Path, command: Command) -> None:
    with read_only(tmp_path):
        for output in (tmp_path, tmp_path / "new"):
            says = f"error: --output: cannot write to `{output}`: Read-only file system"
            assert command(output) == (2, [says])


def test_an_output_may_be_removed_meanwhile(
    tmp_path: Path, command: Command, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, away, save = tmp_path / "output", tmp_path / "away", trials.TrialRun.checkpoint

    def save_and_remove(run: trials.TrialRun) -> None:
        save(run)
        if not away.exists():
            output.rename(away)

    with monkeypatch.context() as patch:
        patch.setattr(trials.TrialRun, "checkpoint", save_and_remove)
        code, said = command(output)
    assert code == 1
    assert len(said) == 1
    assert said[0].startswith(f"failed: cannot write {output / 'trials'}")
    assert said[0].endswith("the same command goes on")
    check_completes(command, tmp_path / "other", undisturbed)


def test_a_store_may_be_locked_for_a_while(
    tmp_path: Path, command: Command, undisturbed: Any
) -> None:
    command(tmp_path, "--set", "rounds=1")  # makes the store
    shutil.rmtree(tmp_path / "trials")
    with closing(sqlite3.connect(tmp_path / "mlflow.db", check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        threading.Timer(2.0, other.rollback).start()
        assert command(tmp_path) == (0, [])
    assert bits(tmp_path) == undisturbed
    found = rounds_in_mlflow(f"sqlite:///{tmp_path / 'mlflow.db'}", "run")
    assert sorted(found) == sorted([*MIRRORED, ("FINISHED", [0, 1])])


@pytest.mark.ray
def test_rays_object_store_may_be_full_and_its_disk_too(tmp_path: Path) -> None:
    side = {"x": np.zeros((400, 60_000), np.float32), "y": np.arange(400) % 2}
    clients = np.arange(400) % 4
    arrays = {f"{name}_train": array for name, array in {**side, "client": clients}.items()}
    few = {f"{name}_test": array[:40] for name, array in {**side, "client": clients}.items()}
    np.savez(tmp_path / "large.npz", **arrays, **few)
    command = [
        "--set",
        f"data.dataset=npz:{tmp_path / 'large.npz'}",
        "--set",
        "model.name=logistic",
    ]
    # Its sockets are there, and their names must be short.
    with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder)) as disk:
        said = run(
            "fedcome_ray.run",
            *command,
            *["--num-shards", "2", "--output", str(tmp_path / "results")],
            RAY_TMPDIR=str(disk.folder),
            RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES="80000000",
        )
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert "failed: Ray's object store is full, and so is the disk that takes" in said.stderr


def test_a_clock_may_be_set_back(
    tmp_path: Path, command: Command, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = count()  # which several threads may ask at once
    monkeypatch.setattr(time, "time", lambda: 1_900_000_000.0 - 3600 * next(hours))
    check_completes(command, tmp_path, undisturbed)
    (folder,) = (tmp_path / "trials").iterdir()
    rounds = read_rounds(folder)
    assert rounds[-1].time < rounds[0].time
    assert all(seconds >= 0 for one in rounds for seconds in one.seconds.values())
