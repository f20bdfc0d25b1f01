"""What a cluster cannot do is refused before anything starts; Ray would wait for ever."""

import os
import tempfile
from pathlib import Path

import ray

from fedcome_ray.errors import UserError
from fedcome_ray.runtime.connection import on_every_node
from fedcome_ray.runtime.placement import Bundle, TrialPlace

ROUNDING = 1e-6  # of sums of resources


def check_feasible(place: TrialPlace) -> None:
    """Refuse a trial that no node could ever host."""
    nodes: list[Bundle] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for bundle in place.bundles:
        if not any(all(node.get(k, 0) >= v for k, v in bundle.items()) for node in nodes):
            wanted = ", ".join(f"{v:g} {k}" for k, v in bundle.items())
            largest: Bundle = max(nodes, key=lambda node: node.get("CPU", 0), default={})
            has = ", ".join(f"{largest.get(k, 0):g} {k}" for k in ("CPU", "GPU"))
            raise UserError(
                f"--cpus-per-shard/--gpus-per-shard: no node can host a bundle of {wanted}; "
                f"the largest node has {has}"
            )
    wanted_cpus = sum(bundle.get("CPU", 0) for bundle in place.bundles)
    all_cpus = sum(node.get("CPU", 0) for node in nodes)
    wanted_gpus = sum(bundle.get("GPU", 0) for bundle in place.bundles)
    all_gpus = sum(node.get("GPU", 0) for node in nodes)
    if wanted_cpus > all_cpus + ROUNDING or wanted_gpus > all_gpus + ROUNDING:
        raise UserError(
            f"--num-shards: a trial needs {wanted_cpus:g} CPUs and {wanted_gpus:g} GPUs, "
            f"the cluster has {all_cpus:g} and {all_gpus:g}"
        )


def check_storage(folder: Path) -> None:
    """Refuse an output folder that some node of the cluster does not see."""
    if sum(node["Alive"] for node in ray.nodes()) == 1:
        return
    with tempfile.NamedTemporaryFile(prefix=".seen-", dir=folder) as marker:
        seen = on_every_node(os.path.exists, marker.name)
    if not all(seen):
        raise UserError(
            f"--output: {seen.count(False)} of {len(seen)} nodes do not see `{folder}`; "
            f"on a cluster it must be on storage that all nodes share"
        )
