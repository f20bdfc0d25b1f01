"""A shard: the virtual clients that one process trains, and what they remember."""

import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray import methods, models
from fedcome_ray.clients import memory
from fedcome_ray.clients.batches import ClientExamples, blocks, rounded_down
from fedcome_ray.clients.captured import StaticSteps
from fedcome_ray.clients.evaluation import CHUNK, Scores, score
from fedcome_ray.clients.states import ClientStates
from fedcome_ray.clients.training import Trainer
from fedcome_ray.datasets.population import Indices, Population, Side, Split
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.arrays import shared_tensor
from fedcome_ray.numerics.device import CPU, move, precision, upload, wants_capture

CACHE = 4 * 2**20
"""Bytes of params that clients trained together should have on a CPU: they are read and written
in every step, so blocks that leave the cache are slower (measured on an MLP of 50,890 params)."""

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """What of a population a shard needs: places in the order of each side's examples."""

    train: slice
    test: slice


EVERYTHING = Part(slice(None), slice(None))


class Shard:
    """Trains and evaluates clients of a trial; the same class in process and behind a Ray actor.

    Reports stay on the device.
    """

    def __init__(
        self,
        trial: Trial,
        population: Population,
        device: torch.device = CPU,
        block_memory: int | None = None,
        part: Part = EVERYTHING,
    ) -> None:
        self.trial, self.device = trial, device
        self.model = models.build(trial.model, population.feature_shape, population.num_classes)
        self.method = methods.build(trial.method)
        self.train_examples = _on_device(population.train, part.train, device)
        self.test_examples = _on_device(population.test, part.test, device)
        self.states = ClientStates(self.method.init_client, self.model.dim)
        self.trainer = Trainer(
            self.model, self.method, trial.local, self.train_examples, trial.seed
        )
        if wants_capture(device):
            self.take_static_steps()
        self.block_memory = block_memory or memory.for_blocks(device, self._held(population))
        self._most_clients: dict[int, int] = {}  # by width, where memory ran out

    def take_static_steps(self) -> None:
        """Train in buffers that stay where they are, from here on; on CUDA, by captured graphs."""
        steps = StaticSteps(self.model, self.method, self.trial.local, self.train_examples)
        self.trainer = replace(self.trainer, static_steps=steps)

    def train(self, received: Any, clients: Cohort, round_index: int) -> Report:
        """Local training of these clients: one report with a row for each."""
        self.states.begin(round_index)
        received = move(received, self.device)
        cohort = np.array(clients)
        sizes = self.train_examples.sizes(cohort)
        widths = (self.model.dim, 1, 1, 1)
        report = Report(*(torch.empty(len(cohort), width, device=self.device) for width in widths))
        waiting = deque(blocks(sizes, self.trial.local.batch_size, self.most_clients))
        while waiting:
            width, block = waiting.popleft()
            part = None
            if len(block) <= self._most_clients.get(width, len(block)):
                part = self._train_block(cohort[block], width, received, round_index)
            if part is None:
                waiting.extendleft((width, half) for half in reversed(np.array_split(block, 2)))
                continue
            rows = upload(block, self.device)
            for whole, piece in zip(report.fields(), part.fields(), strict=True):
                whole.index_copy_(0, rows, piece)
        return report

    def _train_block(
        self, clients: Indices, width: int, received: Any, round_index: int
    ) -> Report | None:
        """The report of some clients, None if there was no memory for so many."""
        ids = torch.from_numpy(clients)
        try:
            state = move(self.states.of(ids), self.device)
            with self._precision():
                state, report = self.trainer.train(clients, width, received, state, round_index)
            self.states.propose(ids, move(state, CPU))
            return report
        except torch.OutOfMemoryError as error:
            if len(clients) == 1:
                raise FedcomeError(
                    f"{self.device} has no memory for a single client with batches of {width}: "
                    f"{error}; give a shard more of it, see --gpus-per-shard and --num-shards"
                ) from None
        # Out of `except`, which keeps the tensors of the failed attempt alive.
        self._most_clients[width] = half = math.ceil(len(clients) / 2)
        words = "%s has no memory for %d clients with batches of %d at once, from here on %d"
        log.warning(words, self.device, len(clients), width, half)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def most_clients(self, width: int, size: int) -> int:
        """How many clients with batches of this width and so many examples train together."""
        if not self.model.is_stacked(self.device):
            return 1
        local = self.trial.local
        own = memory.bytes_per_client(self.model, self.method, local, width, size)
        limit = min(self.block_memory // own, self._most_clients.get(width, len(self.offsets)))
        if self.device.type == "cpu":
            limit = min(limit, CACHE // (4 * self.model.dim))
        # Static steps fill blocks up: to no more than there is memory for.
        is_static = self.trainer.static_steps is not None
        return rounded_down(max(1, limit)) if is_static else max(1, limit)

    def evaluate(self, params: Tensor, chunks: Sequence[int], side: Side = "test") -> Scores:
        """Score these chunks of the pooled test, or training, examples."""
        examples = self.test_examples if side == "test" else self.train_examples
        params = params.to(self.device)
        losses, hits = [], []
        for chunk in chunks:
            start = chunk * CHUNK - examples.first
            index = examples.order[start : start + CHUNK]
            with self._precision():
                loss, correct = score(self.model, params, examples.x[index], examples.y[index])
            losses.append(loss)
            hits.append(correct)
        return Scores(torch.cat(losses).cpu().numpy(), torch.cat(hits).cpu().numpy())

    @property
    def offsets(self) -> Indices:
        return self.train_examples.offsets

    def _precision(self) -> Any:
        wanted = self.trial.local.precision
        return precision(self.device, wanted, can_autocast=self.model.can_autocast)

    def _held(self, population: Population) -> int:
        """Bytes on the device beside blocks: examples, and the reports of a round, twice."""
        sides = (self.train_examples, self.test_examples)
        examples = sum(side.x.nbytes + side.y.nbytes + side.order.nbytes for side in sides)
        everybody = population.num_clients  # in a calibration perhaps fewer than a cohort
        is_small = (self.trial.cohort_size or 0) > everybody
        cohort = everybody if is_small else self.trial.cohort_size_of(everybody)
        return examples + 2 * cohort * 4 * self.model.dim


def _on_device(split: Split, part: slice, device: torch.device) -> ClientExamples:
    """The examples; on a CPU all of them, where they are, on a GPU those that the shard needs."""
    if device.type == "cpu":
        x, y = shared_tensor(split.examples.x), shared_tensor(split.examples.y)
        return ClientExamples(x, y, shared_tensor(split.order), split.offsets)
    rows = split.order[part]
    first = part.indices(len(split.order))[0]
    return ClientExamples(
        torch.from_numpy(split.examples.x[rows]).to(device),
        torch.from_numpy(split.examples.y[rows]).to(device),
        torch.arange(len(rows), device=device),
        split.offsets - first,
        first,
    )
