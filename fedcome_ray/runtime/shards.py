"""Shards of clients behind Ray actors: the same federation, in other processes."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayTaskError
from torch import Tensor

from fedcome_ray import methods
from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import Evaluation
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Side
from fedcome_ray.errors import ShardError
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
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.methods.method import Cohort, OnlyParams, Report
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import Arrays, shared_tensor
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.runtime import lines, objects, session
from fedcome_ray.runtime.lines import Line, Memories, Question, UpdateRows
from fedcome_ray.runtime.objects import Message
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.populations import SharedPopulation
from fedcome_ray.runtime.waiting import AnswerTimes

MakeShards = Callable[[Trial, SharedPopulation], Shards]
"""(trial, its population) -> its shards, ready to train"""
DEATHS = (
    ray.exceptions.RayActorError,
    ray.exceptions.ObjectLostError,
    lines.LostLineError,
)


def in_this_process(place: TrialPlace) -> MakeShards:
    """The only shard of a trial beside its server."""
    fetch = lru_cache(maxsize=1)(SharedPopulation.fetch)  # the next trial often has the same

    def make(trial: Trial, shared: SharedPopulation) -> Shards:
        # Here and not before: an error of the device is then one of the trial, with its cause.
        chosen = device.pick(place.gpus_per_shard)
        return LocalShards(trial, fetch(shared), device=chosen, memory=place.memory_per_shard)

    return make


def in_a_pool(place: TrialPlace, plugins: Sequence[str]) -> MakeShards:
    """Shards behind actors that serve one trial after the other."""
    pool = ShardPool(place)

    def make(trial: Trial, shared: SharedPopulation) -> Shards:
        pool.replace_dead()  # else a shard that died late would fail every trial after it
        return RayShards(trial, shared, pool, plugins)

    return make


class Called:
    """A shard that is asked by calls of Ray."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._call: Any = None

    def ask(self, question: Question, message: Message, seconds: float) -> None:
        what = getattr(self._actor, question.what)
        self._call = what.remote(message.to_call_with, *question.arguments)

    def hear(self, seconds: float) -> Any:
        call, self._call = self._call, None  # with it goes its answer
        return ray.get(call, timeout=seconds)


class RayShards:
    """The shards of one trial, behind the actors of a pool; the first perhaps in this process."""

    def __init__(
        self, trial: Trial, shared: SharedPopulation, pool: ShardPool, plugins: Sequence[str] = ()
    ) -> None:
        self.pool, place = pool, pool.place
        self.population = shared.fetch()
        self._method = methods.build(trial.method)
        self._cohort_size = trial.cohort_size_of(self.population.num_clients)
        # Reports of actors come through memory, to where the server computes.
        self.device = device.pick(place.gpus_per_shard if place.is_joint else 0.0)
        self._own: list[Shard] = []
        if place.is_joint:
            part = part_of(self.population, trial, 0, place.num_shards)
            memory = place.memory_per_shard
            self._own = [Shard(trial, self.population, self.device, memory, part)]
        self._others: dict[int, Called | Line] = {}  # by their numbers
        self._memories: Memories | None = None
        self._times = AnswerTimes()
        self._load_arguments = (trial.model_dump(mode="json"), list(plugins), shared)
        try:
            self._load()
        except ShardError:  # of an actor that has died since the pool looked
            self.rebuild()

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Report:
        shares = self._shares(cohort)
        rows = rows_of(shares)
        update, targets = self._room_for(rows, received.params)
        report = Report.around(update)

        def train_own(shard: Shard) -> tuple[()]:
            shard.train(received, shares[0], round_index, report.of(rows[0]))
            return ()

        answers = self._ask("train", received, shares, round_index, own=train_own, targets=targets)
        for number, fields in answers:  # those that the shard has not written to memory itself
            parts = report.of(rows[number]).fields()
            for part, field in zip(parts[len(parts) - len(fields) :], fields, strict=True):
                part.copy_(shared_tensor(field))
        return report

    def losses(self, params: Tensor, clients: Cohort) -> Floats:
        return np.concatenate(self._found("losses", params, self._shares(clients)))

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        split = self.population.side(side)
        shares = split_scored(self._method, split, self.pool.place.num_shards)
        return join_scores(self._found("evaluate", params, shares, side), split)

    def evaluate_personally(self, params: Tensor, round_index: int) -> Evaluation:
        shares = self._shares(tuple(range(self.population.num_clients)))
        scores = self._found("evaluate_personally", params, shares, round_index)
        return join_scores(scores, self.population.test)

    def computed_with(self) -> Sequence[Arithmetic]:
        return [*(computed_with(shard.device) for shard in self._own), *self._computed_with]

    def export_states(self) -> Arrays:
        own = [shard.states.export() for shard in self._own]
        return join_states([*own, *self._call("export_states")])

    def restore_states(self, states: Arrays) -> None:
        shares = split_states(states, self.population.num_clients, self.pool.place.num_shards)
        for shard in self._own:
            shard.states.restore(shares[0])
        self._call("restore_states", lambda number: (shares[number],))

    def rebuild(self) -> None:
        self.pool.replace_dead()
        self._load()

    def _load(self) -> None:
        # Asked now, and not of a shard that has died since its last round.
        self._computed_with = self._call("load", lambda number: (*self._load_arguments, number))
        self._others = {number: Called(actor) for number, actor in self._actors()}
        self._memories = None  # who is being killed may still write to it
        if lines.IS_POSSIBLE and self.device == device.CPU:
            with lines.open_exchange(len(self._others)) as exchange:
                have_dialled = self._call("dial", lambda number: (exchange.address, number))
                with self._replacing("dial"):
                    self._others |= exchange.accept(sum(have_dialled))

    def _shares(self, clients: Cohort) -> list[Cohort]:
        return split_cohort(clients, self.population.num_clients, self.pool.place.num_shards)

    def _actors(self) -> Iterator[tuple[int, Any]]:
        """With the numbers of their shards."""
        return enumerate(self.pool.actors, start=len(self._own))

    def _room_for(
        self, rows: Sequence[slice], params: Tensor
    ) -> tuple[Tensor, Sequence[UpdateRows | None]]:
        """Memory for updates, and where those of each shard are in it, if a shard can see it."""
        num_rows, width = rows[-1].stop, len(params)
        if not any(isinstance(other, Line) for other in self._others.values()):
            return torch.empty(num_rows, width, device=self.device), [None] * len(rows)
        if self._memories is None or self._memories.most_rows < num_rows:
            self._memories = Memories(max(num_rows, self._cohort_size), width)
        memory, update = self._memories.take(num_rows)
        return update, [UpdateRows(memory, some, width) for some in rows]

    def _found(self, what: str, params: Tensor, shares: Sequence[Any], *others: Any) -> list[Any]:
        """What shards find out about params, each for its share, in the order of the shards."""

        def own(shard: Shard) -> Any:
            return getattr(shard, what)(params, shares[0], *others)

        answers = self._ask(what, OnlyParams(params), shares, *others, own=own)
        return [answer for _, answer in answers]

    def _ask(
        self,
        what: str,
        received: Any,
        shares: Sequence[Any],
        *others: Any,
        own: Callable[[Shard], Any],
        targets: Sequence[UpdateRows | None] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """The answers of shards, each for its share, with their numbers, in that order.

        `own` asks the shard of this process. Shards without a share are not asked.
        """
        begun = time.monotonic()
        message = Message(received)
        asked = [number for number in self._others if shares[number]]
        with self._replacing(what):
            for number in asked:
                target = None if targets is None else targets[number]
                question = Question(what, (shares[number], *others), target)
                self._others[number].ask(question, message, self._times.limit(what))
        for shard in self._own:  # while the others are at work
            if shares[0]:
                yield 0, own(shard)
        with self._times.waiting(what, begun) as seconds:
            end = time.monotonic() + seconds
            for number in asked:
                with self._replacing(what):
                    answer = self._others[number].hear(max(0.0, end - time.monotonic()))
                yield number, answer

    def _call(
        self, what: str, arguments: Callable[[int], tuple[Any, ...]] = lambda number: ()
    ) -> list[Any]:
        """What all actors answer, by calls."""
        calls = [
            getattr(actor, what).remote(*arguments(number)) for number, actor in self._actors()
        ]
        with self._replacing(what), self._times.waiting(what) as seconds:
            return list(ray.get(calls, timeout=seconds))

    @contextmanager
    def _replacing(self, what: str) -> Iterator[None]:
        """The death of actors is ours to handle, their errors are not.

        An actor whose GPU is lost, or that hangs, is as good as dead. Which one it is does not
        matter: all of them go back to the last checkpoint anyway.
        """
        try:
            yield
        except (RayTaskError, lines.ForeignError) as error:
            if isinstance(error.cause, objects.NO_ROOM):
                raise objects.no_room() from error
            if not device.is_lost(error.cause):
                raise error.cause from (error if isinstance(error, RayTaskError) else None)
            self.pool.replace_all()
            raise ShardError(f"a shard lost its GPU: {error.cause}") from error
        except TimeoutError as error:  # Ray's is one, too
            self.pool.replace_all()
            raise ShardError(f"a shard hangs, asked to `{what}`") from error
        except DEATHS as error:
            session.keep()
            raise ShardError(f"a shard died: {error}") from error
