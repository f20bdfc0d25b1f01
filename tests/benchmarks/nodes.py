"""What crosses the network between nodes: `python -m tests.benchmarks.nodes` (on Linux, as root).

Three raylets in network namespaces of their own; bytes are those that the interface of each has
counted. The command runs on the first node, which has no CPUs; the third joins in the middle of a
launch. Bytes of a round are the difference between launches that differ in their rounds alone.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from fedcome_ray import datasets
from tests.clusters import RayCluster, RayNode, no_namespaces_because, ray_cluster, until

CLIENTS, EXAMPLES, FEATURES, HIDDEN = 20, 600, 784, 64
SETTINGS = {
    "data.dataset": "synthetic",
    "data.num_clients": CLIENTS,
    "data.examples_per_client": EXAMPLES,
    "data.num_features": FEATURES,
    "model.name": "mlp",
    "model.hidden": f"[{HIDDEN}]",
}
FEW, MORE = 5, 25  # rounds
MANY = 24  # trials, so that some are left for the node that joins


class Traffic(NamedTuple):
    """Bytes of a node's interface."""

    received: int
    sent: int

    def since(self, before: "Traffic") -> "Traffic":
        return Traffic(self.received - before.received, self.sent - before.sent)


def main() -> int:
    if (why := no_namespaces_because()) is not None:
        print(why)
        return 1
    with ray_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.add(cpus=0)
        cluster.watch()
        second = cluster.add(cpus=2)
        print(json.dumps(measure(cluster, second, Path(folder)), indent=2))
    return 0


def measure(cluster: RayCluster, second: RayNode, folder: Path) -> dict[str, object]:
    """Bytes by what they are for."""
    begun = traffic(second)
    launch = start(cluster, folder / "joined", FEW, MANY)
    until(lambda: any(one.cpus and not one.free for one in cluster.usage.values()), "trials")
    third = cluster.add(cpus=2)
    new = traffic(third)
    finish(launch)
    joined = {
        "node that was there": traffic(second).since(begun)._asdict(),
        "node that joined": traffic(third).since(new)._asdict(),
    }
    apart = per_round(cluster, [second, third], folder, trials=4)
    shared = per_round(cluster, [second, third], folder, trials=1)
    return {
        "bytes of the examples": examples_bytes(),
        "bytes of the params": 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * 10 + 10),
        f"launch of {MANY} trials": joined,
        "a round of four trials, each in one process": apart,
        "a round of one trial on four shards": shared,
    }


def examples_bytes() -> int:
    data = {name.removeprefix("data."): v for name, v in SETTINGS.items() if name[:5] == "data."}
    population = datasets.load(datasets.parse(data))
    sides = (population.train.examples, population.test.examples)
    return sum(side.x.nbytes + side.y.nbytes for side in sides)


def per_round(
    cluster: RayCluster, nodes: list[RayNode], folder: Path, trials: int
) -> list[dict[str, float]]:
    """Of each node, what one round of all these trials adds to a launch."""
    found = []
    for rounds in (FEW, MORE):
        before = [traffic(node) for node in nodes]
        finish(start(cluster, folder / f"{trials}-{rounds}", rounds, trials))
        found.append([traffic(node).since(one) for node, one in zip(nodes, before, strict=True)])
    return [
        {name: value / (MORE - FEW) for name, value in more.since(few)._asdict().items()}
        for few, more in zip(*found, strict=True)
    ]


def start(cluster: RayCluster, output: Path, rounds: int, trials: int) -> "subprocess.Popen[str]":
    settings = {**SETTINGS, "rounds": rounds}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words += ["--axis", f"seed={','.join(map(str, range(trials)))}", "--address", cluster.address]
    words += ["--output", str(output), "--tracking-uri", f"sqlite:///{output.parent / 'mlflow.db'}"]
    return cluster.start("-m", "fedcome_ray.tune", *words)


def finish(launch: "subprocess.Popen[str]") -> None:
    said, _ = launch.communicate()
    assert launch.returncode == 0, said


def traffic(node: RayNode) -> Traffic:
    """What the interface of its namespace has counted so far."""
    table = subprocess.check_output([*node.namespace, "cat", "/proc/net/dev"], text=True)
    (numbers,) = (line.split(":")[1].split() for line in table.splitlines() if "eth0:" in line)
    return Traffic(int(numbers[0]), int(numbers[8]))


if __name__ == "__main__":
    sys.exit(main())
