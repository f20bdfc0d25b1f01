"""How trials are laid out on a cluster: processes, shares of CPUs and GPUs, trials at once."""

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.numerics import device, processors

NumberT = TypeVar("NumberT", int, float)
Bundle = dict[str, float]

MOST_PER_GPU = 4
"""Processes on one GPU, unless the user says how many: more than that only take turns."""
LEAST_GPU_MEMORY = 3_500_000_000
"""Bytes for each of them: CUDA's context, the examples, clients in training."""
PRECISION = 10_000  # Ray counts resources in this fraction of one
ROUNDING = 1e-6  # of sums of resources
NODE_LABEL = "ray.io/node-id"  # that Ray gives every node


class Node(NamedTuple):
    """A machine; GPUs that PyTorch cannot use there are not counted."""

    host: str
    cpus: float
    gpus: int = 0
    gpu_memory: int = 0  # bytes, of the smallest
    key: str = ""  # by which Ray knows it

    def without_gpus(self) -> "Node":
        return self._replace(gpus=0, gpu_memory=0)


def this_machine(options: MachineOptions) -> Node:
    """The node that a private Ray makes of this machine."""
    cpus = options.num_cpus or processors.usable_cpus()
    gpus = device.usable_gpus()
    wanted = len(gpus) if options.num_gpus is None else options.num_gpus
    if not 0 < wanted <= len(gpus):
        return Node(platform.node(), cpus)
    return Node(platform.node(), cpus, wanted, min(gpu.memory for gpu in gpus))


@dataclass(frozen=True)
class TrialPlace:
    """The processes of a trial and what each of them is given."""

    num_shards: int = 1
    cpus_per_shard: float = 0.8
    gpus_per_shard: float = 0.0
    server_cpus: float = 0.2
    memory_per_shard: int | None = None  # bytes for clients in training; None: by the device
    is_joint: bool = False
    """The first shard, often the only one, lives in the server's process: that saves the way for
    its reports, and the server computes on its GPU.
    """
    gpu_nodes: tuple[str, ...] = ()  # whose GPUs are used; nothing: of all on which Ray counts some

    @property
    def num_actors(self) -> int:
        """Shards in processes of their own."""
        return self.num_shards - self.is_joint

    @property
    def bundles(self) -> list[Bundle]:
        """The placement group of a trial: its server, then the shards that are not in it."""
        shard = _without_zeros({"CPU": self.cpus_per_shard, "GPU": self.gpus_per_shard})
        server = {"CPU": self.server_cpus}
        if self.is_joint:
            server = {**shard, "CPU": round(self.cpus_per_shard + self.server_cpus, 4)}
        return [server, *[shard] * self.num_actors]

    def label_selector(self, bundle: Bundle) -> dict[str, str]:
        """Which nodes Ray may send a bundle to; nothing: to any that has the resources."""
        if not self.gpu_nodes or "GPU" not in bundle:
            return {}
        return {NODE_LABEL: f"in({','.join(self.gpu_nodes)})"}


def _without_zeros(bundle: Bundle) -> Bundle:
    return {resource: amount for resource, amount in bundle.items() if amount}


class Placement(NamedTuple):
    """What runs at the same time."""

    trial: TrialPlace
    concurrent: int  # trials


def place(options: MachineOptions, num_trials: int, nodes: Sequence[Node]) -> Placement:
    """Many trials: one process each, as many as there are cores, or up to four on each GPU.
    Few trials: several shards each, on the cores that are there, or one on each GPU.

    The first shard is beside the server: while shards train a server has nothing to do, reports of
    that shard need not travel, and on GPUs it would otherwise need one of its own or be slow.
    """
    if options.refuses_gpus:
        nodes = [node.without_gpus() for node in nodes]
    gpus, cpus = sum(node.gpus for node in nodes), sum(node.cpus for node in nodes)
    per_gpu = _processes_per_gpu(options, num_trials, nodes) if gpus else 0
    processes = gpus * per_gpu if gpus else cpus
    shards = options.num_shards or max(1, math.floor(processes / max(1, num_trials)))
    trial = TrialPlace(
        num_shards=shards,
        gpus_per_shard=_rounded_down(1 / per_gpu) if per_gpu else 0.0,
        memory_per_shard=options.memory_per_shard,
        is_joint=True,
    )
    if options.cpus_per_shard is not None:
        choices = [replace(trial, cpus_per_shard=options.cpus_per_shard)]
    else:
        choices = [replace(trial, cpus_per_shard=own) for own in _cpus_per_shard(trial, nodes)]
    numbers = [at_once(options, num_trials, choice, nodes) for choice in choices]
    most = max(numbers)
    return Placement(choices[numbers.index(most)], max(1, most))  # the first of equals


def at_once(
    options: MachineOptions, num_trials: int, trial: TrialPlace, nodes: Sequence[Node]
) -> int:
    """How many such trials are to run at the same time on these nodes; 0 if they host none.

    Not more than have a core, or their part of a GPU, for each shard, unless the user says what a
    shard reserves.
    """
    most = min(num_trials, options.max_concurrent or num_trials)
    if options.cpus_per_shard is None:
        processes = sum(node.cpus for node in nodes)
        if trial.gpus_per_shard:
            processes = sum(node.gpus for node in nodes) * round(1 / trial.gpus_per_shard)
        most = max(1, min(most, math.floor(processes / trial.num_shards)))
    return capacity(trial, nodes, most)


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
    server, *shards = trial.bundles
    if not shards:
        return min(most, sum(slots(node, server) for node in nodes))
    shares = per_gpu(shards[0]) if "GPU" in shards[0] else 0
    cpus, gpus = [node.cpus for node in nodes], [node.gpus * shares for node in nodes]

    def is_hosted(bundle: Bundle) -> bool:
        need = 1 if "GPU" in bundle else 0
        for node in range(len(nodes)):
            if cpus[node] + ROUNDING >= bundle["CPU"] and gpus[node] >= need:
                cpus[node] -= bundle["CPU"]
                gpus[node] -= need
                return True
        return False

    # The smallest last: it fits where others do not.
    by_size = sorted(trial.bundles, key=lambda one: ("GPU" in one, one["CPU"]), reverse=True)
    for number in range(most):
        if not all(is_hosted(bundle) for bundle in by_size):
            return number
    return most


def words(placement: Placement) -> str:
    """The placement in words."""
    trial = placement.trial
    gpus = f" and {trial.gpus_per_shard:g} GPU" if trial.gpus_per_shard else ""
    own = trial.memory_per_shard
    memory = f", {own / 2**20:.0f} MB for clients in training" if own is not None else ""
    shards = f"{trial.num_actors} shard(s) with {trial.cpus_per_shard:g} CPU{gpus}"
    if trial.is_joint:
        first = f"one process with {bundle_words(trial.bundles[0])}"
        processes = f"{first}, and {shards}" if trial.num_actors else first
    else:
        processes = f"a server with {trial.server_cpus:g} CPU and {shards}"
    return f"{placement.concurrent} at once, each {processes}{memory}"


def bundle_words(bundle: Bundle) -> str:
    return " and ".join(f"{amount:g} {resource}" for resource, amount in bundle.items())
