"""A shard: the virtual clients that one process trains, and what they remember."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcome_ray import methods, models
from fedcome_ray.clients.batches import ClientExamples, blocks
from fedcome_ray.clients.evaluation import CHUNK, Scores, score
from fedcome_ray.clients.states import ClientStates
from fedcome_ray.clients.training import Trainer
from fedcome_ray.datasets.population import Population, Side, Split
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.arrays import shared_tensor
from fedcome_ray.numerics.device import CPU, move, precision

BLOCK_MEMORY = 256 * 2**20
"""Bytes that a shard may use for the clients it trains together, unless told otherwise."""
CACHE = 4 * 2**20
"""Bytes of params that clients trained together should have on a CPU: they are read and written
in every step, so blocks that leave the cache are slower (measured on an MLP of 50,890 params)."""


class Shard:
    """Trains and evaluates clients of a trial; the same class in process and behind a Ray actor."""

    def __init__(
        self,
        trial: Trial,
        population: Population,
        device: torch.device = CPU,
        memory: int | None = None,
    ) -> None:
        self.trial, self.device, self.memory = trial, device, memory or BLOCK_MEMORY
        self.model = models.build(trial.model, population.feature_shape, population.num_classes)
        self.method = methods.build(trial.method)
        self.train_examples = _on_device(population.train, device)
        self.test_examples = _on_device(population.test, device)
        self.states = ClientStates(self.method.init_client, self.model.dim)
        self.trainer = Trainer(
            self.model, self.method, trial.local, self.train_examples, trial.seed
        )

    def train(self, received: Any, clients: Cohort, round_index: int) -> Report:
        """Local training of these clients: one report with a row for each."""
        self.states.begin(round_index)
        received = move(received, self.device)
        cohort = np.array(clients)
        sizes = self.train_examples.sizes(cohort)
        report = Report(*(torch.empty(len(cohort), width) for width in (self.model.dim, 1, 1, 1)))
        for width, block in blocks(sizes, self.trial.local.batch_size, self.most_clients):
            clients_of_block = torch.from_numpy(cohort[block])
            state = move(self.states.of(clients_of_block), self.device)
            with precision(self.device, self.trial.local.precision):
                state, part = self.trainer.train(cohort[block], width, received, state, round_index)
            self.states.propose(clients_of_block, move(state, CPU))
            rows = torch.from_numpy(block)
            for whole, piece in zip(report.fields(), part.fields(), strict=True):
                whole.index_copy_(0, rows, piece.cpu())
        return report

    def most_clients(self, width: int) -> int:
        """How many clients with batches of this width are trained together."""
        if not self.model.is_stacked(self.device):
            return 1
        floats = 4 * self.model.dim + width * self.model.activations
        limit = self.memory // (4 * floats)
        if self.device.type == "cpu":
            limit = min(limit, CACHE // (4 * self.model.dim))
        return max(1, limit)

    def evaluate(self, params: Tensor, chunks: Sequence[int], side: Side = "test") -> Scores:
        """Score these chunks of the pooled test, or training, examples."""
        examples = self.test_examples if side == "test" else self.train_examples
        params = params.to(self.device)
        losses, hits = [], []
        for chunk in chunks:
            index = examples.order[chunk * CHUNK : (chunk + 1) * CHUNK]
            with precision(self.device, self.trial.local.precision):
                loss, correct = score(self.model, params, examples.x[index], examples.y[index])
            losses.append(loss.cpu().numpy())
            hits.append(correct.cpu().numpy())
        return Scores(np.concatenate(losses), np.concatenate(hits))


def _on_device(split: Split, device: torch.device) -> ClientExamples:
    x, y, order = (
        shared_tensor(array).to(device)
        for array in (split.examples.x, split.examples.y, split.order)
    )
    return ClientExamples(x, y, order, split.offsets)
