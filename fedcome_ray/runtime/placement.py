"""How trials are laid out on a cluster: processes, shares of CPUs and GPUs, trials at once."""

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from fedcome_ray.clients.shard import BLOCK_MEMORY
from fedcome_ray.console.options import MachineOptions

NumberT = TypeVar("NumberT", int, float)
SHARDS_PER_GPU = 4

Bundle = dict[str, float]


@dataclass(frozen=True)
class TrialPlace:
    """The processes of a trial and what each of them is given. None of it changes a result."""

    num_shards: int = 1
    cpus_per_shard: float = 0.8
    gpus_per_shard: float = 0.0
    server_cpus: float = 0.2
    memory_per_shard: int = BLOCK_MEMORY  # bytes for the clients that are trained together
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


def place(options: MachineOptions, num_trials: int, cpus: float, gpus: float) -> Placement:
    """Many trials: one process each, as many trials as cores. Few trials: several shards each."""
    shards = options.num_shards or max(1, math.floor(cpus / max(1, num_trials)))
    server = TrialPlace.server_cpus
    # The server works while its shards wait, and the other way round: together they are one core.
    # Rounded down to what Ray can express: all shards together must not need more than there is.
    a_core_each = math.floor((1 - server / shards) * 10_000) / 10_000
    trial = TrialPlace(
        num_shards=shards,
        cpus_per_shard=_given(options.cpus_per_shard, a_core_each),
        gpus_per_shard=_given(options.gpus_per_shard, 1 / SHARDS_PER_GPU if gpus else 0),
        memory_per_shard=_given(options.memory_per_shard, BLOCK_MEMORY),
        is_joint=options.num_shards is None and shards == 1,
    )
    fits = math.floor(cpus / (server + shards * trial.cpus_per_shard) + 1e-9)
    if trial.gpus_per_shard:
        fits = min(fits, math.floor(gpus / (shards * trial.gpus_per_shard) + 1e-9))
    concurrent = max(1, min(fits, num_trials, options.max_concurrent or num_trials))
    return Placement(trial, concurrent)


def _given(wish: NumberT | None, otherwise: NumberT) -> NumberT:
    return otherwise if wish is None else wish


def words(placement: Placement) -> str:
    """The placement in words."""
    trial = placement.trial
    gpus = f" and {trial.gpus_per_shard:g} GPU" if trial.gpus_per_shard else ""
    memory = f"{trial.memory_per_shard / 2**20:.0f} MB for clients in training"
    if trial.is_joint:
        cpus = f"{trial.bundles[0]['CPU']:g} CPU"
        return f"{placement.concurrent} at once, each one process with {cpus}{gpus}, {memory}"
    return (
        f"{placement.concurrent} at once, each a server with {trial.server_cpus:g} CPU and "
        f"{trial.num_shards} shard(s) with {trial.cpus_per_shard:g} CPU{gpus}, {memory}"
    )
