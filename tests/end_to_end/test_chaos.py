"""A short, fixed set of disturbances; `python -m tests.chaos` has them all, at random."""

import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import chaos
from tests.end_to_end.commands import start

pytestmark = [
    pytest.mark.ray,
    # MLflow's own use of SQLAlchemy and others.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.mark.timeout(1200)  # three launches, which a busy machine takes its time for
def test_nothing_is_lost_by_what_kills_parts_of_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "METHODS", ["scaffold"])
    tally = chaos.Tally()
    kinds = ["SIGKILL trial", "SIGTERM group"]
    expected = chaos.undisturbed(tmp_path)
    chaos.run_chain(tmp_path / "out", "shards", kinds, random.Random(0), tally, expected)
    assert tally.survived == dict.fromkeys(kinds, 1)
    assert tally.is_good, str(tally)


def launches_of(process: psutil.Process) -> list[psutil.Process]:
    """Not what else it starts for a moment, such as git."""
    found = []
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            if "fedcome_ray.tune" in child.cmdline():
                found.append(child)
    return found


def test_chaos_that_is_stopped_leaves_no_launch_behind() -> None:
    process = start("tests.chaos", "--seconds", "600")
    own, end = psutil.Process(process.pid), time.monotonic() + 120
    launches: list[psutil.Process] = []
    while not launches and time.monotonic() < end:
        time.sleep(0.1)
        launches = launches_of(own)
    time.sleep(2)  # until who started it knows of it
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert launches
    assert process.returncode == 1
    assert "0 survived" in said
    assert not any(map(chaos.is_alive, launches))
