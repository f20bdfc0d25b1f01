"""A shard: the virtual clients that one process trains, and what they remember."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcome_ray import methods, models
from fedcome_ray.arrays import shared_tensor
from fedcome_ray.client_states import ClientStates
from fedcome_ray.config import Trial
from fedcome_ray.evaluation import CHUNK, Scores, score
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.population import Population, Split
from fedcome_ray.training import ClientExamples, train

# Clients that are trained together: enough to keep matrix products busy, few enough for the cache.
BLOCK = 16


class Shard:
    """Trains and evaluates clients of a trial; the same class in process and behind a Ray actor."""

    def __init__(self, trial: Trial, population: Population) -> None:
        self.trial = trial
        self.model = models.build(trial.model, population.feature_shape, population.num_classes)
        self.method = methods.build(trial.method)
        self.train_examples = _on_device(population.train)
        self.test_examples = _on_device(population.test)
        self.states = ClientStates(self.method.init_client, self.model.dim)

    def train(self, received: Any, clients: Cohort, round_index: int) -> Report:
        """Local training of these clients: one report with a row for each."""
        self.states.begin(round_index)
        reports = []
        for block in torch.tensor(clients).split(BLOCK):
            state, report = train(
                self.model,
                self.method,
                self.trial.local,
                self.train_examples,
                block,
                received,
                self.states.of(block),
                self.trial.seed,
                round_index,
            )
            self.states.propose(block, state)
            reports.append(report)
        return Report.concatenate(reports)

    def evaluate(self, params: Tensor, chunks: Sequence[int]) -> Scores:
        """Score these chunks of the pooled test examples."""
        losses, hits = [], []
        for chunk in chunks:
            index = self.test_examples.order[chunk * CHUNK : (chunk + 1) * CHUNK]
            x, y = self.test_examples.x[index], self.test_examples.y[index]
            loss, correct = score(self.model, params, x, y)
            losses.append(loss.numpy())
            hits.append(correct.numpy())
        return Scores(np.concatenate(losses), np.concatenate(hits))


def _on_device(split: Split) -> ClientExamples:
    arrays = (split.examples.x, split.examples.y, split.order, split.offsets)
    return ClientExamples(*(shared_tensor(array) for array in arrays))
