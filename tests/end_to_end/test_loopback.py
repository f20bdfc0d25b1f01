"""Who can reach a launch: only processes of this machine."""

from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

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


def test_no_process_of_a_launch_listens_beyond_the_loopback_interface(tmp_path: Path) -> None:
    long = ["--axis", "seed=0", "--set", "rounds=100000", "--set", "data.num_clients=10"]
    shards = ["--num-shards", "2", "--cpus-per-shard", "0.4"]
    launch = start("fedcome_ray.tune", *long, *shards, "--output", str(tmp_path))
    try:
        wait_for_rounds(tmp_path, 2)
        found = listeners(psutil.Process(launch.pid))
    finally:
        launch.terminate()
        launch.communicate(timeout=120)
    assert {"gcs_server", "raylet"} <= {name for _, name in found}
    assert len(found) >= 6  # also the driver, the trial's actor and its shards
    foreign = {name: where for name, where in found.items() if not all(map(is_loopback, where))}
    assert foreign == {}
