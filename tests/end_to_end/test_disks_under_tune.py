"""A disk that fails under a launch on Ray: the trial says so, and the same command goes on."""

import sqlite3
import time
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from fedcome_ray.tracking.store import open_store
from fedcome_ray.trials.folder import read_rounds
from tests import chaos
from tests.end_to_end.disks import read_only, small_disk
from tests.leftovers import bits, rounds_in_mlflow
from tests.unit.tracking.stores import TAGS

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def num_rounds(output: Path) -> int:
    return sum(len(read_rounds(folder)) for folder in output.glob("trials/*"))


def is_under_way(output: Path, before: int) -> bool:
    """Whether there are new rounds, and a run in the store, which is opened meanwhile."""
    return num_rounds(output) not in {0, before} and has_a_run(output / "mlflow.db")


def has_a_run(store: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as tables:
            return tables.execute("SELECT 1 FROM runs").fetchone() is not None
    except sqlite3.OperationalError:  # it is not there yet, or being written
        return False


def launch_with(failing: AbstractContextManager[None], output: Path) -> tuple[int, str]:
    """A launch whose disk begins to fail when it is under way: its exit code, what it said."""
    log, before = output.with_suffix(".log"), num_rounds(output)
    log.unlink(missing_ok=True)
    launch, end = chaos.start(output, "joint"), time.monotonic() + chaos.PATIENCE
    try:
        while not is_under_way(output, before) and time.monotonic() < end:
            assert launch.poll() is None, log.read_text()
            time.sleep(0.02)
        with failing:
            return launch.wait(chaos.PATIENCE), log.read_text()
    finally:
        launch.kill()
        launch.wait()


@pytest.mark.timeout(1200)  # three launches, which a busy machine takes its time for
def test_a_disk_may_fill_up_or_refuse_to_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "METHODS", ["scaffold"])
    expected = chaos.undisturbed(tmp_path)
    output = tmp_path / "out"
    output.mkdir()
    with small_disk(output) as disk:
        open_store(f"sqlite:///{output / 'mlflow.db'}", "other", output, TAGS)  # else it comes late
        failures = {
            "No space left on device": disk.full(),
            "Read-only file system": read_only(output),
        }
        for why, failing in failures.items():
            code, said = launch_with(failing, output)
            assert code == 1, said
            assert f": cannot write {output / 'trials'}" in said
            assert f"{why}; with that mended, the same command goes on" in said
            assert "Traceback" not in said
        assert chaos.start(output, "joint").wait(chaos.PATIENCE) == 0
        assert bits(output) == expected
        mirrored = rounds_in_mlflow(f"sqlite:///{output / 'mlflow.db'}", "chaos")
        assert mirrored == [("FINISHED", list(range(chaos.ROUNDS + 1)))]
