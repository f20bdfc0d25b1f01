"""The clients of a federation, wherever they live; here, in this process."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import Evaluation
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Population, Side
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.sharding import (
    join_scores,
    join_states,
    part_of,
    rows_of,
    split_cohort,
    split_scored,
    split_states,
)
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.arrays import Arrays
from fedcome_ray.numerics.device import CPU
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.libraries import Arithmetic


class Shards(Protocol):
    """The clients of a federation, wherever they live."""

    population: Population
    device: torch.device  # where their reports are

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Report:
        """Local training of the cohort: a report with a row for each of them, in its order."""

    def losses(self, params: Tensor, clients: Cohort) -> Floats:
        """The mean training loss of each of these clients."""

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        """Loss and accuracy of every client."""

    def evaluate_personally(self, params: Tensor, round_index: int) -> Evaluation:
        """The same on test examples, after each client trained the params on its own examples."""

    def computed_with(self) -> Sequence[Arithmetic]:
        """What the processes of the shards compute with."""

    def export_states(self) -> Arrays:
        """What clients remember, for a checkpoint: their ids and a row for each, by field."""

    def restore_states(self, states: Arrays) -> None:
        """Make clients remember this and nothing else."""

    def rebuild(self) -> None:
        """Replace dead shards by new ones; what their clients remembered is lost."""


class LocalShards:
    """Shards in this process, one after the other."""

    def __init__(
        self,
        trial: Trial,
        population: Population,
        num_shards: int = 1,
        device: torch.device = CPU,
        memory: int | None = None,
    ) -> None:
        self.population, self.device = population, device
        self.shards = [
            Shard(trial, population, device, memory, part_of(population, trial, number, num_shards))
            for number in range(num_shards)
        ]

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Report:
        shares = split_cohort(cohort, self.population.num_clients, len(self.shards))
        dim = self.shards[0].model.dim
        report = Report.around(torch.empty(len(cohort), dim, device=self.device))
        for shard, clients, rows in zip(self.shards, shares, rows_of(shares), strict=True):
            if clients:
                shard.train(received, clients, round_index, report.of(rows))
        return report

    def losses(self, params: Tensor, clients: Cohort) -> Floats:
        shares = split_cohort(clients, self.population.num_clients, len(self.shards))
        return np.concatenate(
            [
                shard.losses(params, some)
                for shard, some in zip(self.shards, shares, strict=True)
                if some
            ]
        )

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        split = self.population.side(side)
        shares = split_scored(self.shards[0].method, split, len(self.shards))
        scores = [
            shard.evaluate(params, parts, side)
            for shard, parts in zip(self.shards, shares, strict=True)
            if parts
        ]
        return join_scores(scores, split)

    def evaluate_personally(self, params: Tensor, round_index: int) -> Evaluation:
        everybody = tuple(range(self.population.num_clients))
        shares = split_cohort(everybody, len(everybody), len(self.shards))
        scores = [
            shard.evaluate_personally(params, clients, round_index)
            for shard, clients in zip(self.shards, shares, strict=True)
            if clients
        ]
        return join_scores(scores, self.population.test)

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
