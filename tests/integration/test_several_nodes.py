"""Clusters of several nodes, which join and die while trials run: the same bits as on one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedcome_ray.launch.request import rounds_begun
from fedcome_ray.trials.folder import read_result
from tests.clusters import RayCluster, no_namespaces_because, ray_cluster, until
from tests.data_files import write_femnist
from tests.end_to_end.commands import ROOT, environment
from tests.leftovers import bits

pytestmark = pytest.mark.ray

ROUNDS, SEEDS = 5, 6
WRITERS, IMAGES = 60, 20_000  # of the dataset
# FedAvg whose server waits in the third round of its process until the gate, a file, is there: a
# trial that has started keeps its place as long as a test needs. Every round leaves a checkpoint.
GATED = """
import time
from pathlib import Path
from typing import Literal
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Method
from fedcome_ray.numerics import device
from fedcome_ray.trials import run

device.pick = lambda share: device.CPU  # GPUs are numbers here that Ray counts
run.CHECKPOINT_SECONDS, run.CHECKPOINT_SHARE = 0.0, 1e9
GATE, rounds = Path(__file__).with_name("gate"), []


class Gated(Hyperparameters):
    name: Literal["gated"] = "gated"


def build(hp):
    def aggregate(server, cohort, report):
        if len(server.params) > 100:  # not in the rehearsal
            rounds.append(1)
            while len(rounds) > 2 and not GATE.exists():
                time.sleep(0.05)
        return parts.average(server, cohort, report)

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
"""
ALONE = """
import sys
from pathlib import Path
from fedcome_ray.experiments.grid import DEFAULTS_ALONE, NO_PROFILE, sweep
from fedcome_ray.experiments.settings import parse_axes, parse_overrides
from fedcome_ray.experiments.trial import identified
from fedcome_ray.plugins import load_plugins
from tests.leftovers import run_untracked

plugin, output, seeds, *settings = sys.argv[1:]
load_plugins([plugin])
axes = parse_axes([seeds])
for trial in identified(sweep(DEFAULTS_ALONE, NO_PROFILE, parse_overrides(settings), axes), None):
    run_untracked(trial, Path(output))
"""


# A launch on a cluster where PyTorch, so it is said, can use all GPUs.
WITH_GPUS = """
import sys
from fedcome_ray import tune
from fedcome_ray.numerics.device import Gpu
from fedcome_ray.runtime import nodes

nodes.gpus_here = lambda: nodes.Gpus([Gpu("a card", 2**35)], "")
sys.exit(tune.main(sys.argv[1:]))
"""


class Work(NamedTuple):
    """A sweep of gated trials: how a launch of it is asked for, and what it must leave."""

    folder: Path
    gate: Path
    words: list[str]
    bits: dict[str, Any]

    def tune(self, name: str, address: str) -> list[str]:
        """The words of its launch on processors, with results in the folder of this name."""
        return ["-m", "fedcome_ray.tune", *self.options(name, address), "--device", "cpu"]

    def options(self, name: str, address: str) -> list[str]:
        where = ["--address", address, "--output", str(self.folder / name)]
        return [*self.words, *where, *self.tracked]

    @property
    def tracked(self) -> list[str]:
        """One store for all: making one takes longer than these trials."""
        return ["--tracking-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]

    def rounds(self, name: str) -> list[int]:
        """After how many rounds each trial would go on."""
        return [rounds_begun(one) for one in (self.folder / name / "trials").glob("*")]


class Files(NamedTuple):
    """Folders of data, as nodes have them."""

    of_launch: Path
    same: Path
    other: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    made = Files(*(folder / name for name in Files._fields))
    for data, seed in zip(made, (0, 0, 1), strict=True):
        write_femnist(data, IMAGES, WRITERS, seed)
    return made


@pytest.fixture(scope="module")
def cluster(files: Files) -> Iterator[RayCluster]:
    """Two nodes that differ, each with its own files of the same data; a third may join."""
    with ray_cluster(FEDCOME_DATA_DIR=str(files.of_launch)) as nodes:
        nodes.add(cpus=1)
        nodes.watch()
        nodes.add(cpus=2, gpus=1, FEDCOME_DATA_DIR=str(files.same))
        yield nodes


@pytest.fixture(scope="module")
def work(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Run in one process first, with the gate open."""
    folder = tmp_path_factory.mktemp("work")
    plugin, gate, alone = folder / "gated.py", folder / "gate", folder / "alone"
    plugin.write_text(GATED)
    gate.touch()
    settings = ["data.dataset=femnist", "model.name=mlp", "model.hidden=[8]", "participation=0.05"]
    settings += ["method.name=gated", f"rounds={ROUNDS}"]
    seeds = f"seed={','.join(map(str, range(SEEDS)))}"
    command = [sys.executable, "-c", ALONE, str(plugin), str(alone), seeds, *settings]
    variables = {**environment(), "FEDCOME_DATA_DIR": str(files.of_launch)}
    subprocess.run(command, env=variables, timeout=200, check=True)
    words = ["--plugin", str(plugin), "--axis", seeds]
    words += [word for setting in settings for word in ("--set", setting)]
    found = bits(alone)
    assert len(found) == SEEDS
    return Work(folder, gate, words, found)


@pytest.fixture(autouse=True)
def is_closed(work: Work) -> None:
    work.gate.unlink(missing_ok=True)


def used(cluster: RayCluster) -> list[float]:
    """The CPUs that are in use on each node, from the smallest node to the largest."""
    return [one.cpus - one.free for one in sorted(cluster.usage.values())]


def used_gpus(cluster: RayCluster) -> list[float]:
    """The same of GPUs."""
    return [one.gpus - one.free_gpus for one in sorted(cluster.usage.values())]


def finish(launch: "subprocess.Popen[str]") -> str:
    said, _ = launch.communicate(timeout=400)
    assert launch.returncode == 0, said
    return said


@pytest.mark.skipif(no_namespaces_because() is not None, reason=no_namespaces_because() or "")
def test_nodes_have_addresses_of_their_own(cluster: RayCluster) -> None:
    until(lambda: len(cluster.usage) == 2, "two nodes")
    assert len({address.rpartition(":")[0] for address in cluster.usage}) == 2


def test_a_cluster_that_wants_a_token_says_so(cluster: RayCluster, work: Work) -> None:
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "another" * 5}
    refused = cluster.start(*work.tune("refused", cluster.address), **variables)
    said, _ = refused.communicate(timeout=200)
    assert refused.returncode == 2, said
    assert f"the cluster at `{cluster.address}` wants its token" in said


def test_a_driver_dies_and_the_same_command_goes_on(cluster: RayCluster, work: Work) -> None:
    command = work.tune("killed", "auto")
    first = cluster.start(*command)
    # All that the nodes have, one process a core, is used; and each of these trials has begun.
    until(lambda: used(cluster) == [1, 2], "three trials on two nodes")
    until(lambda: work.rounds("killed") == [2, 2, 2], "rounds")
    first.kill()
    first.communicate()
    until(lambda: used(cluster) == [0, 0], "their end")
    work.gate.touch()
    said = finish(cluster.start(*command))
    assert f"{SEEDS - 3} to run" in said
    assert "3 go on at round 3" in said
    assert bits(work.folder / "killed") == work.bits


def test_a_node_joins_and_is_used_and_dies_and_nothing_is_lost(
    cluster: RayCluster, work: Work, files: Files
) -> None:
    launch = cluster.start(*work.tune("joined", cluster.address))
    until(lambda: used(cluster) == [1, 2], "three trials on two nodes")
    third = cluster.add(cpus=3, FEDCOME_DATA_DIR=str(files.other))
    until(lambda: used(cluster) == [1, 2, 3], "three more on the node that joined")
    until(lambda: work.rounds("joined") == [2] * SEEDS, "rounds")
    if cluster.has_namespaces:
        # The second has read what it has itself; nobody trusts what the third has.
        received = [node.traffic().received for node in cluster.nodes[1:]]
        assert received[0] < IMAGES * 28 * 28 / 2 < received[1]
    third.kill()
    until(lambda: used(cluster) == [1, 2], "what is left")
    work.gate.touch()
    assert f"{SEEDS} of {SEEDS} trials" in finish(launch)
    assert bits(work.folder / "joined") == work.bits


def test_gpus_are_filled_and_those_of_a_node_that_joins(cluster: RayCluster, work: Work) -> None:
    launch = cluster.start("-c", WITH_GPUS, *work.options("on_gpus", cluster.address))
    until(lambda: used_gpus(cluster) == [0, 1], "two trials on the only GPU")
    assert used(cluster) == [0, 2]
    third = cluster.add(cpus=4, gpus=2)
    until(lambda: used_gpus(cluster) == [0, 1, 2], "two more on each GPU of the node that joined")
    assert used(cluster) == [0, 2, 4]
    work.gate.touch()
    assert "2 at once, each one process with 1 CPU and 0.5 GPU" in finish(launch)
    third.kill()
    until(lambda: len(used(cluster)) == 2, "its end")
    assert bits(work.folder / "on_gpus") == work.bits


def test_a_job_takes_its_code_and_its_switches_to_every_node(
    cluster: RayCluster, work: Work, tmp_path: Path
) -> None:
    """As `ray job submit` starts it, which itself needs more of Ray than we do."""
    for name in ("fedcome_ray", "tune_configs"):
        shutil.copytree(ROOT / name, tmp_path / "job" / name, ignore=lambda *_: ["__pycache__"])
    (tmp_path / "job/fedcome_ray/version.py").write_text('__version__ = "9.9.9"\n')
    variables = {"FEDCOME_PORTABLE": "1", "FEDCOME_CAPTURE": "0"}
    job = {"runtime_env": {"working_dir": str(tmp_path / "job"), "env_vars": variables}}
    words = ["--set", "rounds=2", "--num-shards", "3", "--device", "cpu", "--axis", "seed=0"]
    words += ["--address", "auto", "--output", str(tmp_path / "results"), *work.tracked]
    finish(
        cluster.start(
            "-m",
            "fedcome_ray.tune",
            *words,
            PYTHONPATH=str(tmp_path / "job"),
            RAY_ADDRESS=cluster.address,
            RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(job),
            **variables,
        )
    )
    (folder,) = (tmp_path / "results" / "trials").iterdir()
    result = read_result(folder)
    assert result is not None
    assert result.provenance["version.fedcome_ray"] == "9.9.9"
    assert {one["portable"] for one in result.computed_with} == {"true"}


def test_every_node_is_examined(cluster: RayCluster, tmp_path: Path) -> None:
    words = ["--address", cluster.address, "--output", str(tmp_path)]
    said = finish(cluster.start("-m", "fedcome_ray.doctor", *words))
    assert "✓ plain nodes" in said
    assert "✓ portable nodes" in said
    assert said.count("do not depend on company") == 2
