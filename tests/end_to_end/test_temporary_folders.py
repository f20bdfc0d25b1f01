"""What launches leave in the folders for temporary files: nothing, however they end."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import chaos
from tests.end_to_end.commands import run, start
from tests.end_to_end.test_grid import wait_for_rounds

pytestmark = pytest.mark.ray

SMALL = ["--set", "rounds=1", "--set", "data.num_clients=10"]
LONG = ["--axis", "seed=0", "--set", "rounds=100000", "--set", "data.num_clients=10"]
SHARDS = ["--num-shards", "2", "--cpus-per-shard", "0.4"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Whose name is short: Ray's sockets are there."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def variables(folder: Path) -> dict[str, str]:
    (folder / "rays").mkdir(exist_ok=True)
    return {"TMPDIR": str(folder), "RAY_TMPDIR": str(folder / "rays")}


def left(folder: Path) -> list[str]:
    """The sessions of Ray, with its link to the latest, and folders of ours."""
    found = [*folder.glob("rays/ray/session_*"), *folder.glob("fedcome-*")]
    return sorted(path.name for path in found)


def wait_until_empty(folder: Path) -> None:
    """Ray may have ended the process; then another one clears up, a moment later."""
    end = time.monotonic() + 10
    while left(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert left(folder) == []


def one_small_trial(folder: Path, output: Path) -> None:
    said = run("fedcome_ray.run", *SMALL, *SHARDS, "--output", str(output), **variables(folder))
    assert said.returncode == 0, said.stderr


def test_a_trial_on_shards_leaves_none_and_those_of_others_as_they_are(
    folder: Path, tmp_path: Path
) -> None:
    other = folder / "rays" / "ray" / "session_2020-01-01_00-00-00_000000_1"
    (other / "logs").mkdir(parents=True)
    one_small_trial(folder, tmp_path)
    assert left(folder) == [other.name]
    assert (other / "logs").is_dir()


def test_a_refused_request_leaves_none(folder: Path, tmp_path: Path) -> None:
    wishes = ["--axis", "seed=0", "--num-shards", "2", "--cpus-per-shard", "4000"]
    refused = run("fedcome_ray.tune", *wishes, "--output", str(tmp_path), **variables(folder))
    assert refused.returncode == 2, refused.stderr
    wishes = ["--axis", "seed=0", "--num-gpus", "3"]
    given = {**variables(folder), "CUDA_VISIBLE_DEVICES": "0"}  # Ray refuses it half-way
    refused = run("fedcome_ray.tune", *wishes, "--output", str(tmp_path), **given)
    assert refused.returncode == 2, refused.stderr
    assert left(folder) == []


@pytest.mark.parametrize(
    ("how", "send"),
    [(signal.SIGINT, os.kill), (signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg)],
)
def test_a_grid_that_is_told_to_stop_leaves_none(
    how: signal.Signals,
    send: Callable[[int, int], None],
    folder: Path,
    tmp_path: Path,
) -> None:
    words = [*LONG, *SHARDS, "--output", str(tmp_path)]
    process = start("fedcome_ray.tune", *words, **variables(folder))
    wait_for_rounds(tmp_path, 2)
    assert len(left(folder)) == 3  # the session, the link to it, Tune's folder
    send(process.pid, how)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    wait_until_empty(folder)


def test_what_a_killed_launch_leaves_goes_with_the_next_and_the_living_keep_theirs(
    folder: Path, tmp_path: Path
) -> None:
    launches = []
    try:
        for name in "killed", "living":
            words = [*LONG, "--output", str(tmp_path / name)]
            before = {*left(folder)}
            launches.append(start("fedcome_ray.tune", *words, **variables(folder)))
            wait_for_rounds(tmp_path / name, 2)
        of_living = {*left(folder)} - before
        killed, living = launches
        killed.kill()
        killed.communicate(timeout=120)
        time.sleep(2)  # its Ray ends with it
        assert len(left(folder)) == 5
        one_small_trial(folder, tmp_path / "next")
        assert {*left(folder)} == of_living
        assert living.poll() is None
    finally:
        for launch in launches:
            launch.kill()
            launch.communicate(timeout=120)


@pytest.mark.usefixtures("s3")
def test_a_launch_whose_results_are_in_a_storage_leaves_none_of_its_trials(
    folder: Path, tmp_path: Path
) -> None:
    given = {**variables(folder), "XDG_CACHE_HOME": str(tmp_path)}
    words = [*LONG, "--output", f"s3://bucket/{tmp_path.name}"]
    with start("fedcome_ray.tune", *words, **given) as process:
        end = time.monotonic() + chaos.PATIENCE
        while not list(folder.glob("fedcome-trials-*/*/rounds.jsonl")):
            assert time.monotonic() < end
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    wait_until_empty(folder)
