"""One round, top to bottom: the page to read first.

`run_round` is the whole data flow of federated learning. It is the same whether the shards live in
this process (`LocalShards`, below) or behind Ray actors (`fedcome_ray.runtime.shards.RayShards`).
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import CHUNK, Metrics, Scores, metrics
from fedcome_ray.clients.shard import BLOCK_MEMORY, Shard
from fedcome_ray.datasets.population import Population, Side, Split
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.server import Server
from fedcome_ray.methods.method import Cohort, Info, Report
from fedcome_ray.numerics.device import CPU
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.trials.checkpoint import Arrays


class RoundRecord(NamedTuple):
    """What happened in a round."""

    round_index: int
    cohort: Cohort
    info: Info
    metrics: Metrics | None  # on the test examples; None in rounds that are not evaluated
    train_metrics: Metrics | None  # the same on the training examples
    seconds: dict[str, float]  # by phase


class Shards(Protocol):
    """The clients of a federation, wherever they live."""

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        """Local training of the cohort: reports whose rows, joined, are in the cohort's order."""

    def evaluate(self, params: Tensor, side: Side = "test") -> Metrics:
        """Loss and accuracy of every client."""

    def computed_with(self) -> Sequence[Arithmetic]:
        """What the processes of the shards compute with."""

    def export_states(self) -> Arrays:
        """What clients remember, for a checkpoint: their ids and a row for each, by field."""

    def restore_states(self, states: Arrays) -> None:
        """Make clients remember this and nothing else."""

    def rebuild(self) -> None:
        """Replace dead shards by new ones; what their clients remembered is lost."""


def run_round(
    server: Server, shards: Shards, *, evaluate: bool = True, evaluate_train: bool = False
) -> RoundRecord:
    """Sample, train, aggregate, evaluate."""
    phases = Phases()
    round_index = server.state.round_index

    cohort = server.sample()  # who takes part
    phases.end("sample")
    received = server.broadcast()  # what they are sent
    phases.end("broadcast")
    reports = shards.train(received, cohort, round_index)  # local training
    phases.end("train")
    report = server.gather(cohort, reports)  # one report for the whole cohort
    phases.end("gather")
    info = server.step(cohort, report)  # sampler learns; consensus or mean; server step
    phases.end("aggregate")
    test = shards.evaluate(server.params) if evaluate else None  # every client's test set
    train = shards.evaluate(server.params, "train") if evaluate_train else None
    phases.end("evaluate")

    return RoundRecord(round_index, cohort, info, test, train, phases.seconds)


class Phases:
    """Wall time of consecutive phases."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


class LocalShards:
    """Shards in this process, one after the other."""

    def __init__(
        self,
        trial: Trial,
        population: Population,
        num_shards: int = 1,
        device: torch.device = CPU,
        memory: int = BLOCK_MEMORY,
    ) -> None:
        self.population, self.device = population, device
        self.shards = [Shard(trial, population, device, memory) for _ in range(num_shards)]

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        shares = split_cohort(cohort, self.population.num_clients, len(self.shards))
        return [
            shard.train(received, clients, round_index)
            for shard, clients in zip(self.shards, shares, strict=True)
            if clients
        ]

    def evaluate(self, params: Tensor, side: Side = "test") -> Metrics:
        split = self.population.side(side)
        shares = split_chunks(split, len(self.shards))
        scores = [
            shard.evaluate(params, chunks, side)
            for shard, chunks in zip(self.shards, shares, strict=True)
            if chunks
        ]
        return join_scores(scores, split)

    def computed_with(self) -> Sequence[Arithmetic]:
        return [computed_with(self.device)]

    def export_states(self) -> Arrays:
        return join_states([shard.states.export() for shard in self.shards])

    def restore_states(self, states: Arrays) -> None:
        shares = split_states(states, self.population.num_clients, len(self.shards))
        for shard, share in zip(self.shards, shares, strict=True):
            shard.states.restore(share)

    def rebuild(self) -> None:
        """Shards in this process do not die on their own."""


def split_cohort(cohort: Cohort, num_clients: int, num_shards: int) -> list[Cohort]:
    """The part of the cohort that lives in each shard: shards own equal ranges of clients."""
    owner = np.array(cohort) * num_shards // num_clients
    cuts = np.searchsorted(owner, np.arange(1, num_shards)).tolist()
    bounds = [0, *cuts, len(cohort)]
    return [cohort[start:end] for start, end in pairwise(bounds)]


def split_states(states: Arrays, num_clients: int, num_shards: int) -> list[Arrays]:
    """The part of the clients' states that belongs to each shard."""
    clients = states.get("ids", np.empty(0, np.int64))
    owners = np.array(clients) * num_shards // num_clients
    return [
        {name: array[owners == shard] for name, array in states.items()}
        for shard in range(num_shards)
    ]


def join_states(parts: Sequence[Arrays]) -> Arrays:
    """The inverse of `split_states`."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def split_chunks(split: Split, num_shards: int) -> list[list[int]]:
    """The chunks of pooled examples that each shard scores."""
    num_chunks = -(-len(split.order) // CHUNK)
    return [part.tolist() for part in np.array_split(np.arange(num_chunks), num_shards)]


def join_scores(scores: Sequence[Scores], split: Split) -> Metrics:
    """Results per client from the scores of all shards, in the order of their chunks."""
    loss, correct = (np.concatenate(column) for column in zip(*scores, strict=True))
    return metrics(Scores(loss, correct), split.offsets)
