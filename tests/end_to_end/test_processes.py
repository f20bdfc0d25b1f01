"""The processes of a launch: who can reach them, and that there are no more than needed."""

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

import psutil
import pytest
from ray.tune.execution import class_cache

from tests.end_to_end.commands import start
from tests.end_to_end.test_grid import wait_for_rounds

pytestmark = pytest.mark.ray


def listeners(root: psutil.Process) -> dict[tuple[int, str], set[str]]:
    """The addresses at which the processes of a tree can be reached, by their id and name."""
    found: dict[tuple[int, str], set[str]] = {}
    for process in [root, *root.children(recursive=True)]:
        try:
            name, sockets = process.name(), process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        if open_to := {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}:
            found[process.pid, name] = open_to
    return found


def is_loopback(address: str) -> bool:
    given = ip_address(address)
    return (getattr(given, "ipv4_mapped", None) or given).is_loopback


def workers(root: psutil.Process) -> list[dict[str, str]]:
    """The environments of processes that Ray has started for tasks and actors, used or not."""
    found = []
    for process in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())
            if title.startswith("ray::"):
                found.append(process.environ())
    return found


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psutil.Process]:
    """A trial with two shards, under way."""
    output = tmp_path_factory.mktemp("launch")
    long = ["--axis", "seed=0", "--set", "rounds=100000", "--set", "data.num_clients=10"]
    shards = ["--num-shards", "2", "--cpus-per-shard", "0.4"]
    launched = start("fedcome_ray.tune", *long, *shards, "--output", str(output))
    try:
        wait_for_rounds(output, 2)
        yield psutil.Process(launched.pid)
    finally:
        launched.terminate()
        launched.communicate(timeout=120)


def test_no_process_of_a_launch_listens_beyond_the_loopback_interface(
    launch: psutil.Process,
) -> None:
    found = listeners(launch)
    assert {"gcs_server", "raylet"} <= {name for _, name in found}
    assert len(found) >= 5  # also the driver, the trial's actor and its second shard
    foreign = {name: where for name, where in found.items() if not all(map(is_loopback, where))}
    assert foreign == {}


def test_a_trial_takes_a_process_that_ray_has_started_ahead(launch: psutil.Process) -> None:
    # Tune's own variables would be in the environment of one that was started for it.
    found = workers(launch)
    assert len(found) >= 2
    of_tune = [one for one in found if class_cache.DEFAULT_ENV_VARS.keys() & one.keys()]
    assert of_tune == []
