"""Before anything starts: how trials are laid out on the machine, and what they cost."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from rich.table import Table

from fedcome_ray import datasets, models
from fedcome_ray.clients.shard import BLOCK_MEMORY, Shard
from fedcome_ray.datasets.population import Description, Examples, Population, split_in_order
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.numerics import device

SHARDS_PER_GPU = 4
# Measured on small trials: starting and ending one, and what a round costs beside its training.
TRIAL_OVERHEAD_SECONDS = 1.0
ROUND_OVERHEAD_SECONDS = 0.006
# A round's line and its metrics in MLflow; a client's results in a round; a process with torch.
ROUND_BYTES = 7_000
CLIENT_BYTES = 8
PROCESS_BYTES = 500_000_000
CALIBRATION_SECONDS = 0.5


Bundle = dict[str, float]


@dataclass(frozen=True)
class Machine:
    """How a trial is laid out on the cluster. None of it changes a result."""

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


class Layout(NamedTuple):
    """What runs at the same time."""

    machine: Machine
    concurrent: int


def lay_out(
    num_trials: int,
    cpus: float,
    gpus: float,
    num_shards: int | None = None,
    cpus_per_shard: float | None = None,
    gpus_per_shard: float | None = None,
    max_concurrent: int | None = None,
    memory_per_shard: int | None = None,
) -> Layout:
    """Many trials: one process each, as many trials as cores. Few trials: several shards each."""
    shards = num_shards or max(1, math.floor(cpus / max(1, num_trials)))
    server = Machine.server_cpus
    # The server works while its shards wait, and the other way round: together they are one core.
    # Rounded down to what Ray can express: all shards together must not need more than there is.
    a_core_each = math.floor((1 - server / shards) * 10_000) / 10_000
    per_shard = cpus_per_shard if cpus_per_shard is not None else a_core_each
    per_gpu = gpus_per_shard if gpus_per_shard is not None else (1 / SHARDS_PER_GPU if gpus else 0)
    memory = memory_per_shard or BLOCK_MEMORY
    is_joint = num_shards is None and shards == 1
    machine = Machine(shards, per_shard, per_gpu, server, memory, is_joint)
    fits = math.floor(cpus / (server + shards * per_shard) + 1e-9)
    if per_gpu:
        fits = min(fits, math.floor(gpus / (shards * per_gpu) + 1e-9))
    concurrent = max(1, min(fits, num_trials, max_concurrent or num_trials))
    return Layout(machine, concurrent)


class Cost(NamedTuple):
    """What a list of trials costs."""

    rounds: int = 0
    client_updates: int = 0
    cpu_seconds: float = 0.0
    disk_bytes: int = 0
    memory_bytes: int = 0  # of the largest trial, in all its processes


def estimate(trials: Sequence[Trial]) -> Cost:
    """Cost from a short calibration of each kind of trial on this machine."""
    device.prepare_process()
    rates: dict[str, float] = {}
    total = Cost()
    for trial in trials:
        shape = datasets.describe(trial.data)
        cohort = trial.cohort_size_of(shape.num_clients)
        kind = f"{trial.model} {trial.local} {name_of(trial.method)} {shape} {cohort}"
        if kind not in rates:
            rates[kind] = _seconds_per_example(trial, shape, cohort)
        cost = _cost_of(trial, shape, cohort, rates[kind])
        total = Cost(
            total.rounds + cost.rounds,
            total.client_updates + cost.client_updates,
            total.cpu_seconds + cost.cpu_seconds,
            total.disk_bytes + cost.disk_bytes,
            max(total.memory_bytes, cost.memory_bytes),
        )
    return total


def _cost_of(trial: Trial, shape: Description, cohort: int, seconds_per_example: float) -> Cost:
    trained = trial.local.epochs * shape.num_train / shape.num_clients * cohort
    evaluated = shape.num_test / trial.eval_every / 3  # only a forward pass
    per_round = (trained + evaluated) * seconds_per_example + ROUND_OVERHEAD_SECONDS
    params_bytes = 4 * models.build(trial.model, shape.feature_shape, shape.num_classes).dim
    results = trial.rounds // trial.eval_every * shape.num_clients
    example_bytes = 4 * math.prod(shape.feature_shape)
    return Cost(
        rounds=trial.rounds,
        client_updates=trial.rounds * cohort,
        cpu_seconds=trial.rounds * per_round + TRIAL_OVERHEAD_SECONDS,
        disk_bytes=2 * params_bytes + trial.rounds * ROUND_BYTES + results * CLIENT_BYTES,
        memory_bytes=PROCESS_BYTES
        + (shape.num_train + shape.num_test) * example_bytes
        + 2 * cohort * params_bytes,  # as reported, and joined at the server
    )


def _seconds_per_example(trial: Trial, shape: Description, cohort: int) -> float:
    """Time of local training per example, measured on random examples.

    One client first, for two batches. If the time allows the whole cohort is measured, else as many
    clients as it allows: small models train faster in company.
    """
    size, epochs = math.ceil(shape.num_train / shape.num_clients), trial.local.epochs
    few = min(size, 2 * (trial.local.batch_size or size))
    once = trial.model_copy(update={"local": trial.local.model_copy(update={"epochs": 1})})
    alone = _training_seconds(once, shape, num_clients=1, size=few) / few
    if alone * size * epochs * cohort < CALIBRATION_SECONDS:
        return _training_seconds(trial, shape, cohort, size) / (cohort * size * epochs)
    company = max(1, min(cohort, int(CALIBRATION_SECONDS / (alone * few))))
    return _training_seconds(once, shape, company, few) / (company * few)


def _training_seconds(trial: Trial, shape: Description, num_clients: int, size: int) -> float:
    rng = np.random.default_rng(0)
    count = num_clients * size
    examples = Examples(
        rng.standard_normal((count, *shape.feature_shape), dtype=np.float32),
        rng.integers(shape.num_classes, size=count),
    )
    side = split_in_order(examples, np.full(num_clients, size))
    shard = Shard(trial, Population(side, side, shape.num_classes))
    received = shard.method.broadcast(shard.method.init_server(shard.model.init(0), num_clients))
    times = []
    for round_index in range(2):  # the first warms up
        start = time.perf_counter()
        shard.train(received, tuple(range(num_clients)), round_index)
        times.append(time.perf_counter() - start)
    return min(times)


def plan_table(trials: Sequence[Trial], finished: set[str]) -> Table:
    """The trials, one line each."""
    table = Table(title=f"{len(trials)} trials", box=None, padding=(0, 0, 0, 1))
    table.add_column("key")
    table.add_column("trial", overflow="fold")
    for heading in ("model", "rounds", "state"):
        table.add_column(heading, no_wrap=True)
    for trial in trials:
        state = "finished" if trial.key in finished else ""
        table.add_row(trial.key, trial.name, name_of(trial.model), str(trial.rounds), state)
    return table


def words(layout: Layout) -> str:
    """The layout in words."""
    machine = layout.machine
    gpus = f" and {machine.gpus_per_shard:g} GPU" if machine.gpus_per_shard else ""
    memory = f"{machine.memory_per_shard / 2**20:.0f} MB for clients in training"
    if machine.is_joint:
        cpus = f"{machine.bundles[0]['CPU']:g} CPU"
        return f"{layout.concurrent} at once, each one process with {cpus}{gpus}, {memory}"
    return (
        f"{layout.concurrent} at once, each a server with {machine.server_cpus:g} CPU and "
        f"{machine.num_shards} shard(s) with {machine.cpus_per_shard:g} CPU{gpus}, {memory}"
    )


def cost_words(cost: Cost, layout: Layout) -> str:
    """The cost in words."""
    cores = layout.concurrent * layout.machine.num_shards
    wall = timedelta(seconds=round(cost.cpu_seconds / cores))
    return (
        f"{cost.rounds:,} rounds, {cost.client_updates:,} client updates: about {wall} on {cores} "
        f"cores by a short calibration of this machine, {_size(cost.disk_bytes)} on disk, "
        f"{_size(layout.concurrent * cost.memory_bytes)} of memory"
    )


def cost_table(trials_by_grid: Mapping[str, Sequence[Trial]], cpus: int | None) -> Table:
    """The cost of each grid and of all, on this machine or on a cluster of so many CPUs."""
    cores = cpus or os.cpu_count() or 1
    table = Table(  # as narrow as can be: no cell may be cut in a terminal of 80 columns
        title=f"By a short calibration of this machine, for {cores} CPUs",
        box=None,
        padding=(0, 0, 0, 1),
    )
    table.add_column("grid", no_wrap=True)
    for heading in ("trials", "rounds", "updates", "CPU time", "time", "disk", "RAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    costs = {name: estimate(trials) for name, trials in trials_by_grid.items()}
    for name, cost in costs.items():
        num_trials = len(trials_by_grid[name])
        table.add_row(name, str(num_trials), *_cells(cost, num_trials, cores))
    total = sum(cost.cpu_seconds for cost in costs.values())
    table.add_section()
    table.add_row("all", *[""] * 3, _time(total), _time(total / cores), "", "")
    return table


def _cells(cost: Cost, num_trials: int, cores: int) -> list[str]:
    at_once = min(num_trials, cores)
    return [
        f"{cost.rounds:,}",
        f"{cost.client_updates / 1000:,.0f}k",
        _time(cost.cpu_seconds),
        _time(cost.cpu_seconds / cores),
        _size(cost.disk_bytes),
        _size(at_once * cost.memory_bytes),
    ]


def _time(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.0f} s"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.3g} GB" if num_bytes > 1e9 else f"{num_bytes / 1e6:.0f} MB"
