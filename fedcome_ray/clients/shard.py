"""A shard: the virtual clients that one process trains, and what they remember."""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedcome_ray import methods, models
from fedcome_ray.clients import availability, memory
from fedcome_ray.clients.batches import ClientExamples, blocks, rounded_down
from fedcome_ray.clients.captured import StaticSteps
from fedcome_ray.clients.evaluation import CHUNK, Scores, has_code, score
from fedcome_ray.clients.states import ClientStates
from fedcome_ray.clients.training import Trainer
from fedcome_ray.datasets.population import Indices, Population, Side, Split, form_of
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.fedavg import FedAvg
from fedcome_ray.methods.method import Cohort, Nothing, OnlyParams, Report
from fedcome_ray.models.model import Compiled
from fedcome_ray.numerics.arrays import shared_tensor
from fedcome_ray.numerics.device import CPU, move, precision, upload, wants_capture
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.randomness import Stream

ResultT = TypeVar("ResultT")
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
        self.model = models.build(trial.model, *form_of(population))
        self.method = methods.build(trial.method)
        train, test = population.train, population.test
        if self.method.pools:
            train = train.of(np.arange(population.num_clients))
        self.train_examples = self._here(train, part.train)
        self.test_examples = self._here(test, part.test)
        sides: dict[Side, Split] = {"train": train, "test": test}
        self._drawn = {side: split for side, split in sides.items() if split.draw is not None}
        self.states = ClientStates(self.method.init_client, self.model.dim)
        examples, local = self.train_examples, trial.local
        if self.method.pools:
            examples = examples.pooled()
            local = local.for_steps(trial.pooled_steps(population.train.sizes))
        self.trainer = Trainer(self.model, self.method, local, examples, trial.seed)
        if wants_capture(device) and not self._drawn:  # captured steps fetch from fixed memory
            self.take_static_steps()
        self.block_memory = block_memory or memory.for_blocks(device, self._held(population))
        self._most_clients: dict[int, int] = {}  # by width, where memory ran out

    def take_static_steps(self) -> None:
        """Train in buffers that stay where they are, from here on; on CUDA, by captured graphs."""
        trainer = self.trainer
        steps = StaticSteps(self.model, self.method, trainer.local, trainer.examples)
        self.trainer = replace(trainer, static_steps=steps)

    def train(
        self, received: Any, clients: Cohort, round_index: int, report: Report | None = None
    ) -> Report:
        """Local training of these clients: a report with a row for each, the one given if any."""
        self.states.begin(round_index)
        received = move(received, self.device)
        cohort = np.array(clients)
        local = self.trainer.local
        sizes = self.trainer.examples.sizes(cohort)
        shares = availability.shares(self.trial.availability, self.trial.seed, round_index, cohort)
        num_steps = availability.steps_taken(shares, local.num_steps(sizes))
        whole = report or Report.around(
            torch.empty(len(cohort), self.model.dim, device=self.device)
        )
        trainer = self._with_examples(self.trainer, cohort)

        def train(block: Indices, width: int) -> tuple[slice | None, Report]:
            ids = torch.from_numpy(cohort[block])
            state = move(self.states.of(ids), self.device)
            rows = _as_slice(block)
            state, part = trainer.train(
                cohort[block],
                num_steps[block],
                width,
                received,
                state,
                round_index,
                None if rows is None else whole.update[rows],
            )
            self.states.propose(ids, move(state, CPU))
            return rows, part

        for block, (rows, part) in self._in_blocks(sizes, num_steps, trainer, train):
            scattered = upload(block, self.device) if rows is None else None
            for place, piece in zip(whole.fields(), part.fields(), strict=True):
                if scattered is not None:
                    place.index_copy_(0, scattered, piece)
                elif piece is not part.update:  # which is there already
                    place[rows] = piece
        return whole

    def evaluate_personally(self, params: Tensor, clients: Cohort, round_index: int) -> Scores:
        """Score the test examples of these clients, each with what it makes of the params.

        That is plain local training on its own examples, which leaves no trace: batches and
        dropout have streams of their own, and nothing is remembered.
        """
        assert self.trial.eval_personal_epochs is not None
        local = self.trial.local.for_epochs(self.trial.eval_personal_epochs)
        everybody, params = np.array(clients), params.to(self.device)
        sizes = self.train_examples.sizes(everybody)
        trainer = Trainer(
            self.model,
            methods.build(FedAvg()),
            local,
            self.train_examples,
            self.trial.seed,
            Stream.PERSONAL_BATCHES,
            Stream.PERSONAL_DROPOUT,
        )
        num_steps = local.num_steps(sizes)

        def tune(block: Indices, width: int) -> list[tuple[Tensor, Tensor]]:
            own = everybody[block]
            received = OnlyParams(self._starts(params, own))
            _, report = self._with_examples(trainer, own).train(
                own, num_steps[block], width, received, Nothing(), round_index
            )
            # One by one, as long as they are: no score depends on the client's company.
            tuned = report.update.add_(received.params)
            examples = self._examples("test", own)
            return list(map(partial(self._score_own, examples), own.tolist(), tuned))

        scores: dict[int, tuple[Tensor, Tensor]] = {}  # by position
        for block, found in self._in_blocks(sizes, num_steps, trainer, tune):
            scores |= zip(block.tolist(), found, strict=True)
        losses, hits = zip(*(scores[at] for at in range(len(everybody))), strict=True)
        return Scores(torch.cat(losses).cpu().numpy(), torch.cat(hits).cpu().numpy())

    def _examples(self, side: Side, clients: Indices) -> ClientExamples:
        """Those of a side, at least of these clients."""
        if side in self._drawn:
            return self._here(self._drawn[side].of(clients), slice(None))
        return self._kept(side)

    def _between(self, side: Side, start: int, end: int) -> tuple[ClientExamples, Tensor]:
        """The examples with these places: which they are, of which."""
        if side in self._drawn:
            split, first = self._drawn[side].at(start, end)
            examples = self._here(split, slice(None))
        else:
            examples = self._kept(side)
            first = examples.first
        return examples, examples.order[start - first : end - first]

    def _here(self, split: Split, part: slice) -> ClientExamples:
        """Examples as the model takes them, where it computes."""
        examples = _on_device(split, part, self.device)
        if isinstance(self.model, Compiled) and examples.scale is None:
            return examples._replace(x=examples.x.to(torch.result_type(examples.x, 0.0)))
        return examples

    def _kept(self, side: Side) -> ClientExamples:
        return self.test_examples if side == "test" else self.train_examples

    def _with_examples(self, trainer: Trainer, clients: Indices) -> Trainer:
        """The trainer, with the examples of these clients if they are drawn."""
        if "train" not in self._drawn:
            return trainer
        return replace(trainer, examples=self._examples("train", clients))

    def _starts(self, params: Tensor, clients: Indices) -> Tensor:
        """Where these clients start: `[dim]` for all of them, or a row for each."""
        if self.method.start is None:
            return params
        self.states.accept()
        state = self.states.of(torch.from_numpy(clients))
        return self.method.start(params, move(state, self.device)).expand(len(clients), -1)

    def _score_own(
        self, examples: ClientExamples, client: int, params: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss and correctness of a client's examples under params of its own."""
        params = params.clone()  # a row may begin anywhere
        rows = examples.order[examples.offsets[client] : examples.offsets[client + 1]]
        chunks = [score(self.model, params, examples, some) for some in rows.split(CHUNK)]
        losses, hits = zip(*chunks, strict=True)
        return torch.cat(losses), torch.cat(hits)

    def _in_blocks(
        self,
        sizes: Indices,
        num_steps: Indices,
        trainer: Trainer,
        work: Callable[[Indices, int], ResultT],
    ) -> Iterator[tuple[Indices, ResultT]]:
        """Work on clients a block at a time -> (positions of its clients, result)."""
        local, are_ragged = trainer.local, trainer.is_compiled
        most_clients = partial(self.most_clients, local)
        waiting = deque(blocks(sizes, num_steps, local, most_clients, are_ragged))
        while waiting:
            width, block = waiting.popleft()
            done = None
            if len(block) <= self._most_clients.get(width, len(block)):
                done = self._attempt(work, block, width)
            if done is None:
                waiting.extendleft((width, half) for half in reversed(np.array_split(block, 2)))
            else:
                yield block, done

    def _attempt(
        self, work: Callable[[Indices, int], ResultT], block: Indices, width: int
    ) -> ResultT | None:
        """The result for some clients, None if there was no memory for so many."""
        try:
            with self._precision():
                return work(block, width)
        except torch.OutOfMemoryError as error:
            if len(block) == 1:
                raise FedcomeError(
                    f"{self.device} has no memory for a single client with batches of {width}: "
                    f"{error}; give a shard more of it, see --gpus-per-shard and --num-shards"
                ) from None
        # Out of `except`, which keeps the tensors of the failed attempt alive.
        self._most_clients[width] = half = math.ceil(len(block) / 2)
        words = "%s has no memory for %d clients with batches of %d at once, from here on %d"
        log.warning(words, self.device, len(block), width, half)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def most_clients(self, local: LocalConfig, width: int, size: int) -> int:
        """How many clients with batches of this width and so many examples make a block."""
        # One at a time, only one of them is ever in the middle of a step.
        is_stacked = self.model.is_stacked(self.device)
        bytes_of = memory.bytes_per_client if is_stacked else memory.bytes_kept
        own = bytes_of(self.model, self.method, local, width, size)
        limit = min(self.block_memory // own, self._most_clients.get(width, len(self.offsets)))
        # Static steps fill blocks up: to no more than there is memory for.
        is_static = self.trainer.static_steps is not None
        return rounded_down(max(1, limit)) if is_static else max(1, limit)

    def losses(self, params: Tensor, clients: Cohort) -> Floats:
        """The mean training loss of each of these clients."""
        with self._precision():
            trainer = self._with_examples(self.trainer, np.array(clients))
            losses = trainer.losses(params.to(self.device), np.array(clients))
        return losses.squeeze(-1).double().numpy(force=True)

    def evaluate(self, params: Tensor, parts: Sequence[int], side: Side = "test") -> Scores:
        """Score these chunks of the pooled test, or training, examples, which stand side by side.

        Where clients have params of their own, `parts` are clients, each scored with its own.
        """
        params = params.to(self.device)

        def score_own(client: int) -> tuple[Tensor, Tensor]:
            own = self._starts(params, np.array([client]))[0]
            return self._score_own(self._examples(side, np.array([client])), client, own)

        def score_chunks(first: int, last: int) -> tuple[Tensor, Tensor]:
            examples, rows = self._between(side, first * CHUNK, (last + 1) * CHUNK)
            return score(self.model, params, examples, rows)

        with self._precision():
            if self.method.start is not None:
                found = list(map(score_own, parts))
            elif side not in self._drawn and has_code(self.model, self._kept(side)):
                found = [score_chunks(parts[0], parts[-1])]
            else:
                found = [score_chunks(part, part) for part in parts]
        losses, hits = zip(*found, strict=True)
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


def _as_slice(block: Indices) -> slice | None:
    """Positions that stand side by side."""
    first, last = int(block[0]), int(block[-1]) + 1
    return slice(first, last) if np.array_equal(block, np.arange(first, last)) else None


def _on_device(split: Split, part: slice, device: torch.device) -> ClientExamples:
    """The examples; on a CPU all of them, where they are, on a GPU those that the shard needs."""
    x, y, scale = split.examples
    factors = None
    if scale is not None:
        factors = shared_tensor(scale.factor).to(device), shared_tensor(scale.shift).to(device)
    if device.type == "cpu":
        labels = shared_tensor(y).contiguous()  # as compiled code reads them
        order = shared_tensor(split.order).contiguous()
        return ClientExamples(shared_tensor(x), labels, order, split.offsets, 0, factors)
    rows = split.order[part]
    first = part.indices(len(split.order))[0]
    return ClientExamples(
        torch.from_numpy(x[rows]).to(device),
        torch.from_numpy(y[rows]).to(device),
        torch.arange(len(rows), device=device),
        split.offsets - first,
        first,
        factors,
    )
