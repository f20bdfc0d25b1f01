"""Shards of clients behind Ray actors: the same federation, in other processes."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import Tensor

from fedcome_ray import methods
from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import Evaluation, Scores
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Side
from fedcome_ray.errors import ShardError
from fedcome_ray.experiments.trial import Trial, check_plugins
from fedcome_ray.federation.sharding import (
    join_scores,
    join_states,
    part_of,
    split_cohort,
    split_scored,
    split_states,
)
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.methods.method import Cohort, OnlyParams, Report
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import (
    Arrays,
    shared_tensor,
    to_arrays,
    to_tensors,
)
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.plugins import load_plugins
from fedcome_ray.runtime import objects
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import SharedPopulation
from fedcome_ray.runtime.waiting import AnswerTimes

AnyT = TypeVar("AnyT")
MakeShards = Callable[[Trial, SharedPopulation], Shards]
"""(trial, its population) -> its shards, ready to train"""


def in_this_process(place: TrialPlace) -> MakeShards:
    """The only shard of a trial beside its server."""

    def make(trial: Trial, shared: SharedPopulation) -> Shards:
        # Here and not before: an error of the device is then one of the trial, with its cause.
        chosen = device.pick(place.gpus_per_shard)
        return LocalShards(trial, shared.fetch(), device=chosen, memory=place.memory_per_shard)

    return make


def in_a_pool(place: TrialPlace, plugins: Sequence[str]) -> MakeShards:
    """Shards behind actors that serve one trial after the other."""
    pool = ShardPool(place)

    def make(trial: Trial, shared: SharedPopulation) -> Shards:
        pool.replace_dead()  # else a shard that died late would fail every trial after it
        return RayShards(trial, shared, pool, plugins)

    return make


class ShardHost:
    """The process of a shard actor; it serves one trial after the other."""

    def __init__(self, place: TrialPlace) -> None:
        device.prepare_process()
        self._place = place
        self._device = device.CPU
        self._shard: Shard | None = None

    def load(
        self, trial: dict[str, Any], plugins: list[str], shared: SharedPopulation, number: int
    ) -> Arithmetic:
        """Serve this trial, as the shard with this number; what it computes with."""
        load_plugins(plugins)
        settings = Trial.model_validate(trial)
        check_plugins(settings)
        self._shard = None  # its memory is needed for the next
        self._device = device.pick(self._place.gpus_per_shard)
        population, place = shared.fetch(), self._place
        part = part_of(population, settings, number, place.num_shards)
        self._shard = Shard(settings, population, self._device, place.memory_per_shard, part)
        return computed_with(self._device)

    def train(self, received: Any, clients: Cohort, round_index: int) -> tuple[Any, ...]:
        report = self.shard.train(to_tensors(received), clients, round_index)
        return tuple(field.numpy(force=True) for field in report.fields())

    def losses(self, received: Any, clients: Cohort) -> Floats:
        return self.shard.losses(to_tensors(received).params, clients)

    def evaluate(self, received: Any, parts: list[int], side: Side) -> Scores:
        return self.shard.evaluate(to_tensors(received).params, parts, side)

    def evaluate_personally(self, received: Any, clients: Cohort, round_index: int) -> Scores:
        return self.shard.evaluate_personally(to_tensors(received).params, clients, round_index)

    def export_states(self) -> Arrays:
        return self.shard.states.export()

    def restore_states(self, states: Arrays) -> None:
        self.shard.states.restore(states)

    @property
    def shard(self) -> Shard:
        assert self._shard is not None
        return self._shard


class ShardPool:
    """Shard actors that outlive trials: starting a torch process costs more than a small trial.

    They live in the placement group of the actor that owns the pool, so a trial either has all its
    resources or waits.
    """

    def __init__(self, place: TrialPlace) -> None:
        self.place = place
        self._times = AnswerTimes()
        self.actors = [self._start(number) for number in range(place.num_actors)]

    def replace_all(self) -> None:
        """Let no process of the pool be used again: one that is being killed may still answer."""
        for number in range(len(self.actors)):
            self._replace(number)

    def replace_dead(self) -> None:
        """Start others for actors that are dead, or hang."""
        for number, actor in enumerate(self.actors):
            try:
                self._times.get("ready", [actor.__ray_ready__.remote()])
            except ray.exceptions.RayActorError:
                self.actors[number] = self._start(number)
            except ray.exceptions.GetTimeoutError:
                self._replace(number)

    def _replace(self, number: int) -> None:
        ray.kill(self.actors[number])
        self.actors[number] = self._start(number)

    def _start(self, number: int) -> Any:
        place, group = self.place, get_current_placement_group()
        where: dict[str, Any] = {"label_selector": place.label_selector(place.bundles[-1])}
        if group is not None:
            strategy = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=number + 1
            )
            where = {"scheduling_strategy": strategy}
        return (
            ray.remote(ShardHost)
            .options(num_cpus=place.cpus_per_shard, num_gpus=place.gpus_per_shard, **where)
            .remote(place)
        )


class RayShards:
    """The shards of one trial, behind the actors of a pool; the first perhaps in this process."""

    def __init__(
        self, trial: Trial, shared: SharedPopulation, pool: ShardPool, plugins: Sequence[str] = ()
    ) -> None:
        self.pool, place = pool, pool.place
        self.population = shared.fetch()
        self._method = methods.build(trial.method)
        # Reports of actors come through the object store, to where the server computes.
        self.device = device.pick(place.gpus_per_shard if place.is_joint else 0.0)
        self._own: list[Shard] = []
        if place.is_joint:
            part = part_of(self.population, trial, 0, place.num_shards)
            memory = place.memory_per_shard
            self._own = [Shard(trial, self.population, self.device, memory, part)]
        self._times = AnswerTimes()
        self._load_arguments = (trial.model_dump(mode="json"), list(plugins), shared)
        try:
            self._load()
        except ShardError:  # of an actor that has died since the pool looked
            self.rebuild()

    def train(self, received: Any, cohort: Cohort, round_index: int) -> list[Report]:
        message = objects.message(to_arrays(received))  # once, for all actors
        own, others = self._ask("train", received, message, self._shares(cohort), round_index)
        return [*own, *map(self._report, others)]

    def losses(self, params: Tensor, clients: Cohort) -> Floats:
        message = objects.message(to_arrays(OnlyParams(params)))
        own, others = self._ask("losses", params, message, self._shares(clients))
        return np.concatenate([*own, *others])

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        message = objects.message(to_arrays(OnlyParams(params)))
        split = self.population.side(side)
        shares = split_scored(self._method, split, self.pool.place.num_shards)
        own, others = self._ask("evaluate", params, message, shares, side)
        return join_scores([*own, *others], split)

    def evaluate_personally(self, params: Tensor, round_index: int) -> Evaluation:
        message = objects.message(to_arrays(OnlyParams(params)))
        shares = self._shares(tuple(range(self.population.num_clients)))
        own, others = self._ask("evaluate_personally", params, message, shares, round_index)
        return join_scores([*own, *others], self.population.test)

    def computed_with(self) -> Sequence[Arithmetic]:
        return [*(computed_with(shard.device) for shard in self._own), *self._computed_with]

    def export_states(self) -> Arrays:
        calls = [actor.export_states.remote() for actor in self.pool.actors]
        own = [shard.states.export() for shard in self._own]
        return join_states([*own, *self._answers("export_states", calls)])

    def restore_states(self, states: Arrays) -> None:
        shares = split_states(states, self.population.num_clients, self.pool.place.num_shards)
        for shard, share in self._with_own(shares):
            shard.states.restore(share)
        self._answers(
            "restore_states",
            [actor.restore_states.remote(share) for actor, share in self._with_actors(shares)],
        )

    def rebuild(self) -> None:
        self.pool.replace_dead()
        self._load()

    def _load(self) -> None:
        # Asked now, and not of a shard that has died since its last round.
        self._computed_with = self._answers(
            "load",
            [
                actor.load.remote(*self._load_arguments, number)
                for actor, number in self._with_actors(range(self.pool.place.num_shards))
            ],
        )

    def _shares(self, clients: Cohort) -> list[Cohort]:
        return split_cohort(clients, self.population.num_clients, self.pool.place.num_shards)

    def _ask(
        self, what: str, given: Any, message: Any, shares: Sequence[Any], *others: Any
    ) -> tuple[list[Any], list[Any]]:
        """What the shard of this process answers, and what the actors do, each for its share.

        Actors are sent the message for what is given; shards without a share are not asked.
        """
        begun = time.monotonic()
        calls = [
            getattr(actor, what).remote(message, share, *others)
            for actor, share in self._with_actors(shares)
            if share
        ]
        own = [  # while the others are at work
            getattr(shard, what)(given, share, *others)
            for shard, share in self._with_own(shares)
            if share
        ]
        return own, self._answers(what, calls, begun)

    def _with_own(self, shares: Sequence[AnyT]) -> Iterable[tuple[Shard, AnyT]]:
        """The shard of this process, if there is one, with its share."""
        return zip(self._own, shares, strict=False)

    def _with_actors(self, shares: Sequence[AnyT]) -> Iterable[tuple[Any, AnyT]]:
        """The other shards, each with its share."""
        return zip(self.pool.actors, shares[len(self._own) :], strict=True)

    def _report(self, fields: tuple[Any, ...]) -> Report:
        return Report(*(shared_tensor(field).to(self.device) for field in fields))

    def _answers(
        self, question: str, calls: Sequence[Any], begun: float | None = None
    ) -> list[Any]:
        """The results of calls to actors; their death is ours to handle, their errors are not.

        An actor whose GPU is lost, or that hangs, is as good as dead. Which one it is does not
        matter: all of them go back to the last checkpoint anyway.
        """
        try:
            return self._times.get(question, calls, begun)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, objects.NO_ROOM):
                raise objects.no_room() from error
            if not device.is_lost(error.cause):
                raise error.cause from error
            self.pool.replace_all()
            raise ShardError(f"a shard lost its GPU: {error.cause}") from error
        except ray.exceptions.GetTimeoutError as error:
            self.pool.replace_all()
            raise ShardError(f"a shard hangs, asked to `{question}`") from error
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            raise ShardError(f"a shard died: {error}") from error
