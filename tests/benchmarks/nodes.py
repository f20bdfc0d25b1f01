"""What crosses the network between nodes: `python -m tests.benchmarks.nodes` (on Linux, as root).

Three raylets in network namespaces of their own; bytes are those that the interface of each has
counted. The command runs on the first node, which has no CPUs; the second has the dataset's files
itself; the third joins in the middle of a launch, and has none until that is over. Bytes of a round
are the difference between launches that differ in their rounds alone.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clusters import RayCluster, RayNode, no_namespaces_because, ray_cluster, until
from tests.data_files import write_femnist

WRITERS, IMAGES, COHORT, HIDDEN = 600, 60_000, 20, 64
SETTINGS = {
    "data.dataset": "femnist",
    "model.name": "mlp",
    "model.hidden": f"[{HIDDEN}]",
    "cohort_size": COHORT,
}
FEW, MORE = 5, 25  # rounds
MANY = 24  # trials, so that some are left for the node that joins


def main() -> int:
    if (why := no_namespaces_because()) is not None:
        print(why)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_femnist(data, IMAGES, WRITERS)
        with ray_cluster(FEDCOME_DATA_DIR=str(data)) as cluster:
            cluster.add(cpus=0)
            cluster.watch()
            second = cluster.add(cpus=2)
            print(json.dumps(measure(cluster, second, Path(folder)), indent=2))
    return 0


def measure(cluster: RayCluster, second: RayNode, folder: Path) -> dict[str, object]:
    """Bytes by what they are for."""
    begun = second.traffic()
    launch = start(cluster, folder / "joined", FEW, MANY)
    until(lambda: any(one.cpus and not one.free for one in cluster.usage.values()), "trials")
    third = cluster.add(cpus=2, FEDCOME_DATA_DIR=str(folder / "later"))
    new = third.traffic()
    finish(launch)
    joined = {
        "node with files of its own": second.traffic().since(begun)._asdict(),
        "node that joined without": third.traffic().since(new)._asdict(),
    }
    shutil.copytree(folder / "data", folder / "later")
    apart = per_round(cluster, [second, third], folder, trials=4)
    shared = per_round(cluster, [second, third], folder, trials=1)
    return {
        "bytes of the images": IMAGES * 28 * 28,
        f"launch of {MANY} trials": joined,
        "a round of four trials, each in one process": apart,
        "a round of one trial on four shards": shared,
    }


def per_round(
    cluster: RayCluster, nodes: list[RayNode], folder: Path, trials: int
) -> list[dict[str, float]]:
    """What one round of all these trials adds to a launch, first on the node that receives most.

    That is the one with the server of a trial on several shards, whichever node it is.
    """
    found = []
    for rounds in (FEW, MORE):
        before = [node.traffic() for node in nodes]
        finish(start(cluster, folder / f"{trials}-{rounds}", rounds, trials))
        after = [node.traffic().since(one) for node, one in zip(nodes, before, strict=True)]
        found.append(sorted(after, reverse=True))
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


if __name__ == "__main__":
    sys.exit(main())
