"""How trials are laid out on a cluster: processes, shares of CPUs and GPUs, trials at once."""

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.numerics import device

NumberT = TypeVar("NumberT", int, float)
Bundle = dict[str, float]

MOST_PER_GPU = 4
"""Processes on one GPU, unless the user says how many: more than that only take turns."""
LEAST_GPU_MEMORY = 3_500_000_000
"""Bytes for each of them: CUDA's context, the examples, clients in training."""
PRECISION = 10_000  # Ray counts resources in this fraction of one
ROUNDING = 1e-6  # of sums of resources


class Node(NamedTuple):
    """A machine; GPUs that PyTorch cannot use there are not counted."""

    host: str
    cpus: float
    gpus: int = 0
    gpu_memory: int = 0  # bytes, of the smallest

    def without_gpus(self) -> "Node":
        return self._replace(gpus=0, gpu_memory=0)


def this_machine() -> Node:
    """The node that a private Ray makes of this machine."""
    gpus = device.usable_gpus()
    memory = min((gpu.memory for gpu in gpus), default=0)
    return Node(platform.node(), os.cpu_count() or 1, len(gpus), memory)


@dataclass(frozen=True)
class TrialPlace:
    """The processes of a trial and what each of them is given."""

    num_shards: int = 1
    cpus_per_shard: float = 0.8
    gpus_per_shard: float = 0.0
    server_cpus: float = 0.2
    memory_per_shard: int | None = None  # bytes for clients in training; None: by the device
    is_joint: bool = False  # the only shard lives in the server's process, which saves the way

    @property
    def bundles(self) -> list[Bundle]:
        """The placement group of a trial: its server, then its shards."""
        server = {"CPU": self.server_cpus}
        shard = {"CPU": self.cpus_per_shard, "GPU": self.gpus_per_shard}
        if self.is_joint:
            joint = {**shard, "CPU": round(self.cpus_per_shard + self.server_cpus, 4)}
            return [_without_zeros(joint)]
        return [server, *([_without_zeros(shard)] * self.num_shards)]


def _without_zeros(bundle: Bundle) -> Bundle:
    return {resource: amount for resource, amount in bundle.items() if amount}


class Placement(NamedTuple):
    """What runs at the same time."""

    trial: TrialPlace
    concurrent: int  # trials


def place(options: MachineOptions, num_trials: int, nodes: Sequence[Node]) -> Placement:
    """Many trials: one process each, as many as there are cores, or up to four on each GPU.
    Few trials: several shards each, on the cores that are there, or one on each GPU.
    """
    if options.device == "cpu" or options.gpus_per_shard == 0:
        nodes = [node.without_gpus() for node in nodes]
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    per_gpu = _processes_per_gpu(options, num_trials, nodes) if gpus else 0
    processes = gpus * per_gpu if gpus else cpus
    shards = options.num_shards or max(1, math.floor(processes / max(1, num_trials)))
    trial = TrialPlace(
        num_shards=shards,
        gpus_per_shard=_rounded_down(1 / per_gpu) if per_gpu else 0.0,
        memory_per_shard=options.memory_per_shard,
        is_joint=options.num_shards is None and shards == 1,
    )
    most = min(num_trials, options.max_concurrent or num_trials)
    if options.cpus_per_shard is not None:
        trial = replace(trial, cpus_per_shard=options.cpus_per_shard)
        return Placement(trial, max(1, capacity(trial, nodes, most)))
    wanted = max(1, min(most, math.floor(processes / shards)))
    choices = [replace(trial, cpus_per_shard=own) for own in _cpus_per_shard(trial, nodes)]
    best = max(choices, key=lambda choice: capacity(choice, nodes, wanted))  # the first of equals
    return Placement(best, max(1, capacity(best, nodes, wanted)))


def _processes_per_gpu(options: MachineOptions, num_trials: int, nodes: Sequence[Node]) -> int:
    """As many as there is work for, and memory and cores."""
    if options.gpus_per_shard is not None:
        return round(1 / options.gpus_per_shard)
    with_gpus = [node for node in nodes if node.gpus]
    gpus = sum(node.gpus for node in with_gpus)
    room = min(
        min(node.gpu_memory // LEAST_GPU_MEMORY, math.floor(node.cpus / node.gpus))
        for node in with_gpus
    )
    shards = options.num_shards or 1
    useful = math.ceil(num_trials * shards / gpus)
    needed = math.ceil(shards / gpus)  # or no trial would ever start
    return max(1, needed, min(useful, room, MOST_PER_GPU))


def _cpus_per_shard(trial: TrialPlace, nodes: Sequence[Node]) -> list[float]:
    """What shards may reserve, from the most to what is sure to fit.

    The server works while its shards wait, and the other way round: together they are one core a
    shard. On several nodes the parts that are left over may not add up to room for a server, so a
    shard may leave all of it on its own core. Where GPUs have less than a core for each process,
    processes share what there is.
    """
    per_gpu = round(1 / trial.gpus_per_shard) if trial.gpus_per_shard else 0
    cores = min([1.0, *(node.cpus / (node.gpus * per_gpu) for node in nodes if node.gpus)])
    server = trial.server_cpus
    found = [cores - server / trial.num_shards, cores - server]
    return [_rounded_down(own) for own in found if own > 0] or [trial.cpus_per_shard]


def _rounded_down(amount: float) -> float:
    """To what Ray can express: all together must not need more than there is."""
    return math.floor(amount * PRECISION + ROUNDING) / PRECISION


def slots(node: Node, bundle: Bundle) -> int:
    """How many of these bundles a node hosts: a share of a GPU is never spread over two."""
    by_cpus = math.floor(node.cpus / bundle["CPU"] + ROUNDING) if "CPU" in bundle else None
    by_gpus = node.gpus * per_gpu(bundle) if "GPU" in bundle else None
    return min(limit for limit in (by_cpus, by_gpus) if limit is not None)


def per_gpu(bundle: Bundle) -> int:
    """How many of these bundles share a GPU."""
    return math.floor(1 / bundle["GPU"] + ROUNDING)


def capacity(trial: TrialPlace, nodes: Sequence[Node], most: int) -> int:
    """How many such trials, up to `most`, run at the same time."""
    *server, shard = trial.bundles if trial.num_shards == 1 else trial.bundles[:2]
    if not server:
        return min(most, sum(slots(node, shard) for node in nodes))
    shares = per_gpu(shard) if "GPU" in shard else 0
    cpus, gpus = [node.cpus for node in nodes], [node.gpus * shares for node in nodes]

    def is_hosted(bundle: Bundle) -> bool:
        need = 1 if "GPU" in bundle else 0
        for node in range(len(nodes)):
            if cpus[node] + ROUNDING >= bundle["CPU"] and gpus[node] >= need:
                cpus[node] -= bundle["CPU"]
                gpus[node] -= need
                return True
        return False

    for number in range(most):
        # The server last: it fits where others do not.
        if not all(is_hosted(bundle) for bundle in [*[shard] * trial.num_shards, *server]):
            return number
    return most


def words(placement: Placement) -> str:
    """The placement in words."""
    trial = placement.trial
    gpus = f" and {trial.gpus_per_shard:g} GPU" if trial.gpus_per_shard else ""
    own = trial.memory_per_shard
    memory = f", {own / 2**20:.0f} MB for clients in training" if own is not None else ""
    if trial.is_joint:
        cpus = f"{trial.bundles[0]['CPU']:g} CPU"
        return f"{placement.concurrent} at once, each one process with {cpus}{gpus}{memory}"
    return (
        f"{placement.concurrent} at once, each a server with {trial.server_cpus:g} CPU and "
        f"{trial.num_shards} shard(s) with {trial.cpus_per_shard:g} CPU{gpus}{memory}"
    )


def bundle_words(bundle: Bundle) -> str:
    return " and ".join(f"{amount:g} {resource}" for resource, amount in bundle.items())
