"""What trials cost, by a short calibration of this machine."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from rich.table import Table

from fedcome_ray import datasets, methods, models
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets import DatasetSettings
from fedcome_ray.datasets.population import Description
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.methods import parts
from fedcome_ray.numerics import device
from fedcome_ray.runtime.placement import Placement

# Measured on small trials: starting and ending one, and what a round costs beside its training.
TRIAL_OVERHEAD_SECONDS = 1.0
ROUND_OVERHEAD_SECONDS = 0.006
# A round's line and its metrics in MLflow; a client's results in a round; a process with torch.
ROUND_BYTES = 7_000
CLIENT_BYTES = 8
PROCESS_BYTES = 500_000_000
CALIBRATION_SECONDS = 0.5


class Cost(NamedTuple):
    """What a list of trials costs."""

    rounds: int = 0
    client_updates: int = 0
    cpu_seconds: float = 0.0
    disk_bytes: int = 0
    memory_bytes: int = 0  # of the largest trial, in all its processes


Kind = tuple[object, ...]
Rates = dict[Kind, float]
"""Seconds of local training per example, by kind of work."""


def calibrate(trials: Iterable[Trial], tell: Callable[[str], object]) -> Rates:
    """The speed of this machine at each kind of work of these trials, by a short attempt."""
    device.prepare_process()
    kinds: dict[Kind, Trial] = {}
    for trial in trials:
        kinds.setdefault(_kind(trial, _describe(trial.data)), trial)
    rates: Rates = {}
    for number, (kind, trial) in enumerate(kinds.items(), start=1):
        what = f"{name_of(trial.model)} on {trial.data.dataset}, {name_of(trial.method)}"
        tell(f"calibrating {number} of {len(kinds)}: {what}")
        shape = _describe(trial.data)
        rates[kind] = _seconds_per_example(trial, shape, trial.cohort_size_of(shape.num_clients))
    return rates


def estimate(trials: Iterable[Trial], rates: Rates) -> Cost:
    """What trials cost at these rates."""
    total = Cost()
    for trial in trials:
        shape = _describe(trial.data)
        cohort = trial.cohort_size_of(shape.num_clients)
        cost = _cost_of(trial, shape, cohort, rates[_kind(trial, shape)])
        total = Cost(
            total.rounds + cost.rounds,
            total.client_updates + cost.client_updates,
            total.cpu_seconds + cost.cpu_seconds,
            total.disk_bytes + cost.disk_bytes,
            max(total.memory_bytes, cost.memory_bytes),
        )
    return total


@lru_cache
def _describe(data: DatasetSettings) -> Description:
    return datasets.describe(data)  # of many clients, it takes a while


def _kind(trial: Trial, shape: Description) -> Kind:
    """What decides the speed of local training: model, batches, plain or corrected steps."""
    method = methods.build(trial.method)
    is_plain = method.correct is parts.uncorrected and trial.local.clip_norm is None
    batch = trial.local.batch_size or shape.num_train // shape.num_clients
    return trial.model, shape.feature_shape, shape.num_classes, batch, is_plain


def _cost_of(trial: Trial, shape: Description, cohort: int, seconds_per_example: float) -> Cost:
    trained = trial.local.epochs * shape.num_train / shape.num_clients * cohort
    evaluated = shape.num_test / trial.eval_every / 3  # only a forward pass
    per_round = (trained + evaluated) * seconds_per_example + ROUND_OVERHEAD_SECONDS
    params_bytes = 4 * models.build(trial.model, shape.feature_shape, shape.num_classes).dim
    results = (1 + trial.rounds // trial.eval_every) * shape.num_clients
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

    One client first, for two batches; then as many as the time allows, since small models train
    faster in company.
    """
    size = math.ceil(shape.num_train / shape.num_clients)
    few = min(size, 2 * (trial.local.batch_size or size))
    once = trial.model_copy(update={"local": trial.local.model_copy(update={"epochs": 1})})
    alone = _training_seconds(once, shape, num_clients=1, size=few) / few
    company = min(cohort, int(CALIBRATION_SECONDS / (alone * few)))
    if company <= 1:
        return alone
    return _training_seconds(once, shape, company, few) / (company * few)


def _training_seconds(trial: Trial, shape: Description, num_clients: int, size: int) -> float:
    sizes = [size] * num_clients
    shard = Shard(trial, random_population(sizes, shape.feature_shape, shape.num_classes))
    received = first_message(shard, num_clients)
    times = []
    for round_index in range(2):  # the first warms up
        start = time.perf_counter()
        shard.train(received, tuple(range(num_clients)), round_index)
        times.append(time.perf_counter() - start)
    return min(times)


def cost_words(cost: Cost, placement: Placement) -> str:
    """The cost in words."""
    cores = placement.concurrent * placement.trial.num_shards
    wall = timedelta(seconds=round(cost.cpu_seconds / cores))
    return (
        f"{cost.rounds:,} rounds, {cost.client_updates:,} client updates: about {wall} on {cores} "
        f"cores by a short calibration of this machine, {_size(cost.disk_bytes)} on disk, "
        f"{_size(placement.concurrent * cost.memory_bytes)} of memory"
    )


def cost_table(costs: Mapping[str, Cost], num_trials: Mapping[str, int], cores: int) -> Table:
    """The cost of each grid and of all, on a machine or a cluster of so many CPUs."""
    table = Table(  # as narrow as can be: no cell may be cut in a terminal of 80 columns
        title=f"By a short calibration of this machine, for {cores} CPUs",
        box=None,
        padding=(0, 0, 0, 1),
    )
    table.add_column("grid", no_wrap=True)
    for heading in ("trials", "rounds", "updates", "CPU time", "time", "disk", "RAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cost in costs.items():
        table.add_row(name, str(num_trials[name]), *_cells(cost, num_trials[name], cores))
    total = sum(cost.cpu_seconds for cost in costs.values())
    table.add_section()
    table.add_row("all", *[""] * 3, time_words(total), time_words(total / cores), "", "")
    return table


def _cells(cost: Cost, num_trials: int, cores: int) -> list[str]:
    at_once = min(num_trials, cores)
    return [
        f"{cost.rounds:,}",
        f"{cost.client_updates / 1000:,.0f}k",
        time_words(cost.cpu_seconds),
        time_words(cost.cpu_seconds / cores),
        _size(cost.disk_bytes),
        _size(at_once * cost.memory_bytes),
    ]


def time_words(seconds: float) -> str:
    """So many days, hours, minutes or seconds."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.0f} s"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.3g} GB" if num_bytes > 1e9 else f"{num_bytes / 1e6:.0f} MB"
