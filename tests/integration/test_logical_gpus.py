"""GPUs that Ray counts beside a PyTorch that cannot use them, as on a Mac or with a build for CPUs.

In processes of their own: this one may be connected to a cluster without GPUs.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch can use a GPU here"),
]

BEGIN = """
import json, os, sys, threading, time
from fedcome_ray import run, runtime, tune  # before Ray: its switches
import ray
ray.init("local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
"""
GRID = (
    BEGIN
    + """
sys.exit(tune.main([
    "--grid", "heterogeneity", "--output", sys.argv[1], "--set", "rounds=2",
    "--set", "method.name=scaffold", "--set", "seed=0", *sys.argv[2:],
]))
"""
)
SHARDS = (
    BEGIN
    + """
from fedcome_ray import datasets
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.runtime.nodes import find_nodes
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.shards import RayShards
from fedcome_ray.runtime.waiting import wait_for_shards

pool = ShardPool(TrialPlace(4, cpus_per_shard=0.5, gpus_per_shard=0.5))
visible = ray.get([
    actor.__ray_call__.remote(lambda self: os.environ["CUDA_VISIBLE_DEVICES"])
    for actor in pool.actors
])
free = ray.available_resources()
trial = Trial()
try:
    RayShards(trial, share({"": datasets.load(trial.data)})[""], pool)
except UserError as error:
    complaint = str(error)
said = []
late = ShardPool(TrialPlace(1, cpus_per_shard=0.5, gpus_per_shard=1.0))

def say(line):
    said.append(line)
    for actor in pool.actors:
        ray.kill(actor)

wait_for_shards(late.actors, late.place.bundles[-1], say, seconds=1)
nodes = find_nodes()
print(json.dumps({
    "visible": visible, "free": [free.get("GPU", 0), free["CPU"]], "complaint": complaint,
    "gpus": [node.gpus for node in nodes.usable], "unused": nodes.unused_gpus, "said": said,
}))
"""
)
SOME_NODES = """
import json
from fedcome_ray import runtime
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.launch.tune_run import placement_group
from fedcome_ray.numerics.device import Gpu
from fedcome_ray.runtime import feasibility, nodes
from fedcome_ray.runtime.pool import ShardPool
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table, remove_placement_group

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
able, _ = (cluster.add_node(num_cpus=4, num_gpus=2).node_id for _ in range(2))
ray.init(address=cluster.address, log_to_driver=False)


def answer():
    can = ray.get_runtime_context().get_node_id() == able
    return nodes.Gpus([Gpu("a card", 2**35)] * 2 if can else [], "" if can else "a build for CPUs")


nodes.gpus_here = answer
(place, at_once), said = feasibility.lay_out(MachineOptions(), 56)
found = []
for _ in range(4):  # wherever Ray would send them by itself
    group = placement_group(place)()
    ray.get(group.ready())
    found += placement_group_table(group)["bundles_to_node_id"].values()
    remove_placement_group(group)
(pair, _), _ = feasibility.lay_out(MachineOptions(gpus_per_shard=1), 1)
actors = ShardPool(pair).actors
where = lambda self: ray.get_runtime_context().get_node_id()
found += ray.get([actor.__ray_call__.remote(where) for actor in actors])
print(json.dumps({
    "layout": [place.gpus_per_shard, at_once, pair.num_shards, len(actors)],
    "elsewhere": sum(one != able for one in found), "said": said,
}))
ray.shutdown()
cluster.shutdown()
"""
WAITING = (
    BEGIN
    + """
from fedcome_ray.launch import tune_run
tune_run.PATIENCE_SECONDS = 1.0

class Neighbour:
    pass

neighbour = ray.remote(Neighbour).options(num_cpus=4).remote()
ray.get(neighbour.__ray_ready__.remote())
say = tune_run.say

def say_and_make_room(console, line, *style):
    say(console, line, *style)
    if "waiting for" in line:
        ray.kill(neighbour)

tune_run.say = say_and_make_room
sys.exit(tune.main([
    "--grid", "heterogeneity", "--output", sys.argv[1], "--set", "rounds=1",
    "--set", "method.name=fedavg", "--set", "data.partition.classes=2", "--set", "seed=0",
    "--num-shards", "2", "--cpus-per-shard", "0.5",
]))
"""
)


def run_script(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_grid_runs_on_processors_and_says_why(tmp_path: Path) -> None:
    done = run_script(GRID, str(tmp_path / "results"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("no GPU is used") == 1
    assert "Ray counts 2 GPU(s), PyTorch can use 0" in done.stderr
    assert "3 of 3 trials" in done.stdout


def test_a_wish_for_these_gpus_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = run_script(GRID, str(tmp_path / "results"), "--gpus-per-shard", "0.5")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--gpus-per-shard: got `0.5`, but there is no GPU to use" in done.stderr
    assert not list(tmp_path.glob("results/trials/*"))


def test_two_shards_are_given_each_gpu_and_say_that_they_cannot_use_it() -> None:
    done = run_script(SHARDS)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert sorted(found["visible"]) == ["0", "0", "1", "1"]
    assert found["free"] == [0, 2]
    assert "Ray gave this process 0.5 GPU, but PyTorch" in found["complaint"]
    assert found["gpus"] == [0]
    assert "Ray counts 2 GPU(s)" in found["unused"][0]
    (waited,) = found["said"]
    assert "1 of 1 shards have not started; each needs 0.5 CPU and 1 GPU; free now: 2 CPU" in waited


def test_trials_go_to_the_nodes_that_can_use_their_gpus() -> None:
    done = run_script(SOME_NODES)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["layout"] == [0.5, 4, 2, 1]  # 4 cores for 2 GPUs; then a server with one of two
    assert found["elsewhere"] == 0
    assert found["said"].startswith("only the GPUs of 1 node(s) are used. ")
    assert found["said"].endswith("Ray counts 2 GPU(s), PyTorch can use 0: a build for CPUs")


def test_a_trial_that_waits_for_resources_says_for_what(tmp_path: Path) -> None:
    done = run_script(WAITING, str(tmp_path / "results"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("waiting for") == 1
    assert "a trial needs 1 x (0.7 CPU), 1 x (0.5 CPU); free now: 0 CPU and 2 GPU" in done.stderr
