"""What trials cost, by a short calibration of this machine, on its GPU if trials would use it."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from rich.table import Table

from fedcome_ray import datasets, methods, models
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets import DatasetSettings
from fedcome_ray.datasets.population import Description, form_of
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.methods import parts
from fedcome_ray.models.dense import Logistic
from fedcome_ray.numerics import device
from fedcome_ray.runtime.placement import MOST_PER_GPU, Placement
from fedcome_ray.trials.memory import check_memory, memory_of

# Measured on launches of small trials: starting and ending one; and what a round takes that is
# written to MLflow, beside others on the same machine, compared with one that runs alone.
TRIAL_OVERHEAD_SECONDS = 0.06
IN_A_LAUNCH = 1.6
# A round's line and its metrics in MLflow; a client's results in a round; a process with torch.
ROUND_BYTES = 7_000
CLIENT_BYTES = 8
PROCESS_BYTES = 500_000_000
CALIBRATION_SECONDS = 0.5


class Cost(NamedTuple):
    """What a list of trials costs."""

    rounds: int = 0
    client_updates: int = 0
    cpu_seconds: float = 0.0  # of a GPU, where trials compute on one
    disk_bytes: int = 0
    memory_bytes: int = 0  # of the largest trial, in all its processes


class Workers(NamedTuple):
    """What trials compute on."""

    number: int
    kind: Literal["CPU", "GPU"]


Kind = tuple[object, ...]


class Rates(NamedTuple):
    """The speed of a device, in seconds."""

    per_example: dict[Kind, float]  # of local training, by kind of work
    per_round: float  # beside local training


def calibrate(
    trials: Iterable[Trial], tell: Callable[[str], object], on: torch.device = device.CPU
) -> Rates:
    """The speed of this device at each kind of work of these trials, by a short attempt."""
    device.prepare_process()
    kinds: dict[Kind, Trial] = {}
    for trial in trials:
        shape = _describe(trial.data)
        check_memory(trial, shape)
        kinds.setdefault(_kind(trial, shape), trial)
    rates: dict[Kind, float] = {}
    for number, (kind, trial) in enumerate(kinds.items(), start=1):
        what = f"{name_of(trial.model)} on {trial.data.dataset}, {name_of(trial.method)}"
        tell(f"calibrating {number} of {len(kinds)}: {what}")
        shape = _describe(trial.data)
        is_alone = methods.build(trial.method).pools
        cohort = 1 if is_alone else trial.cohort_size_of(shape.num_clients)
        rates[kind] = _seconds_per_example(trial, shape, cohort, on)
    return Rates(rates, IN_A_LAUNCH * _seconds_of_a_tiny_round(on) if rates else 0.0)


def estimate(trials: Iterable[Trial], rates: Rates) -> Cost:
    """What trials cost at these rates."""
    total = Cost()
    for trial in trials:
        shape = _describe(trial.data)
        cohort = trial.cohort_size_of(shape.num_clients)
        cost = _cost_of(trial, shape, cohort, rates)
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
    """What decides the speed of local training: model, batches, kind of steps, company."""
    method = methods.build(trial.method)
    is_plain = method.correct is parts.uncorrected and trial.local.is_plain
    batch = trial.local.batch_size or shape.num_train // shape.num_clients
    return trial.model, *form_of(shape), batch, is_plain, method.pools


def _cost_of(trial: Trial, shape: Description, cohort: int, rates: Rates) -> Cost:
    size = np.array(math.ceil(shape.num_train / shape.num_clients))
    trained = cohort * float(trial.local.num_seen(size))
    tested = shape.num_test / trial.eval_every
    if trial.eval_train_every is not None:
        tested += shape.num_train / trial.eval_train_every
    evaluated = tested / 3  # only a forward pass
    tuned = (trial.eval_personal_epochs or 0) * shape.num_train / trial.eval_every
    per_example = rates.per_example[_kind(trial, shape)]
    per_round = (trained + tuned + evaluated) * per_example + rates.per_round
    params_bytes = 4 * models.build(trial.model, *form_of(shape)).dim
    results = (1 + trial.rounds // trial.eval_every) * shape.num_clients
    return Cost(
        rounds=trial.rounds,
        client_updates=trial.rounds * cohort,
        cpu_seconds=trial.rounds * per_round + TRIAL_OVERHEAD_SECONDS,
        disk_bytes=2 * params_bytes + trial.rounds * ROUND_BYTES + results * CLIENT_BYTES,
        memory_bytes=PROCESS_BYTES + sum(memory_of(trial, shape)),
    )


def _seconds_per_example(trial: Trial, shape: Description, cohort: int, on: torch.device) -> float:
    """Time of local training per example, measured on random examples.

    One client first, for two batches; then as many of them, and as much of their training, as the
    time allows: small models train faster in company, and to begin takes a part of it.
    """
    size = math.ceil(shape.num_train / shape.num_clients)
    few = min(size, 2 * (trial.local.batch_size or size))

    def measured(num_clients: int, num_examples: int, epochs: int) -> float:
        everybody = {"participation": None, "cohort_size": None}
        short = trial.model_copy(update={"local": trial.local.for_epochs(epochs), **everybody})
        seconds = _training_seconds(short, shape, num_clients, num_examples, on)
        return seconds / (num_clients * num_examples * epochs)

    alone = measured(1, few, epochs=1)
    affordable = int(CALIBRATION_SECONDS / alone)  # examples
    company = min(cohort, affordable // few)
    if company <= 1:
        return alone
    own = min(size, affordable // company)
    epochs = min(int(trial.local.num_epochs(np.array(size))), affordable // (company * own))
    return measured(company, own, max(1, epochs))


def _training_seconds(
    trial: Trial, shape: Description, num_clients: int, size: int, on: torch.device
) -> float:
    population = random_population([size] * num_clients, *form_of(shape))
    shard = Shard(trial, population, on)
    received = first_message(shard, num_clients)
    everybody = tuple(range(num_clients))

    def train(round_index: int) -> None:
        shard.train(received, everybody, round_index).total_lr.cpu()  # waits for a GPU

    return _shortest(train, 2, on)  # the first warms up


def _seconds_of_a_tiny_round(on: torch.device) -> float:
    """In which there is next to nothing to train and to test."""
    trial = Trial(model=Logistic())
    population = random_population([1, 1], (1,), 2)
    shards = LocalShards(trial, population, device=on)
    params = models.build(trial.model, *form_of(population)).init(trial.seed)
    server = Server(trial, params.to(on), population.num_clients)
    return _shortest(lambda _: run_round(server, shards), 20, on)


def _shortest(work: Callable[[int], object], times: int, on: torch.device) -> float:
    """Seconds of the quickest of several attempts.

    Other people's work on the same CPUs is not part of the cost; a GPU's time is not CPU time.
    """
    clock = time.process_time if on.type == "cpu" else time.perf_counter
    taken = []
    for number in range(times):
        start = clock()
        work(number)
        taken.append(clock() - start)
    return min(taken)


def workers_of(placement: Placement) -> Workers:
    """Who works; processes that share a GPU are not taken to be faster than one alone."""
    share = placement.trial.gpus_per_shard
    processes = placement.concurrent * placement.trial.num_shards
    return Workers(math.ceil(processes * share), "GPU") if share else Workers(processes, "CPU")


def cost_words(cost: Cost, placement: Placement) -> str:
    """The cost in words."""
    workers = workers_of(placement)
    wall = timedelta(seconds=round(cost.cpu_seconds / workers.number))
    where = f"{workers.number} {'GPU(s)' if workers.kind == 'GPU' else 'cores'}"
    return (
        f"{cost.rounds:,} rounds, {cost.client_updates:,} client updates: about {wall} on {where} "
        f"by a short calibration of this machine, {_size(cost.disk_bytes)} on disk, "
        f"{_size(placement.concurrent * cost.memory_bytes)} of memory"
    )


def cost_table(costs: Mapping[str, Cost], num_trials: Mapping[str, int], workers: Workers) -> Table:
    """The cost of each grid and of all, on a machine or a cluster with these."""
    number, kind = workers
    table = Table(  # as narrow as can be: no cell may be cut in a terminal of 80 columns
        title=f"By a short calibration of this machine, for {number} {kind}s",
        box=None,
        padding=(0, 0, 0, 1),
    )
    table.add_column("grid", no_wrap=True)
    for heading in ("trials", "rounds", "updates", f"{kind} time", "time", "disk", "RAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cost in costs.items():
        table.add_row(name, str(num_trials[name]), *_cells(cost, num_trials[name], workers))
    total = sum(cost.cpu_seconds for cost in costs.values())
    table.add_section()
    table.add_row("all", *[""] * 3, time_words(total), time_words(total / number), "", "")
    return table


def _cells(cost: Cost, num_trials: int, workers: Workers) -> list[str]:
    number, kind = workers
    at_once = min(num_trials, number * MOST_PER_GPU if kind == "GPU" else number)
    return [
        f"{cost.rounds:,}",
        f"{cost.client_updates / 1000:,.0f}k",
        time_words(cost.cpu_seconds),
        time_words(cost.cpu_seconds / number),
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
