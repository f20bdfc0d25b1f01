"""A given cluster of several nodes, on this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

# In a process of its own: this one may be connected to another cluster.
SCRIPT = """
import sys
from fedcome_ray import runtime, tune  # before Ray: its switches
from ray.cluster_utils import Cluster

nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
for _ in range(2):
    nodes.add_node(num_cpus=1, object_store_memory=100_000_000)
code = tune.main([
    "--grid", "heterogeneity", "--address", nodes.address, "--output", sys.argv[1],
    "--set", "rounds=3", "--set", "data.partition.classes=2", "--set", "method.name=scaffold",
    "--set", "seed=0",
    "--num-shards", "2", "--cpus-per-shard", "0.5",
])
from fedcome_ray import doctor
code = code or doctor.main(["--address", nodes.address, "--output", sys.argv[1]])
nodes.shutdown()
sys.exit(code)
"""


def test_a_grid_runs_on_the_nodes_of_a_given_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 trials" in done.stdout
    assert "✓ plain nodes" in done.stdout
    assert "✓ portable nodes" in done.stdout
    assert done.stdout.count("do not depend on company") == 3
