"""The clients of a federation, wherever they live; here, in this process."""

from collections.abc import Sequence
from typing import Any, Protocol

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
    split_chunks,
    split_cohort,
    split_states,
)
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.arrays import Arrays
from fedcome_ray.numerics.device import CPU
from fedcome_ray.numerics.libraries import Arithmetic


class Shards(Protocol):
    """The clients of a federation, wherever they live."""

    population: Population
    device: torch.device  # where their reports are

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        """Local training of the cohort: reports whose rows, joined, are in the cohort's order."""

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        """Loss and accuracy of every client."""

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

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        shares = split_cohort(cohort, self.population.num_clients, len(self.shards))
        return [
            shard.train(received, clients, round_index)
            for shard, clients in zip(self.shards, shares, strict=True)
            if clients
        ]

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
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
