"""Shards of clients behind Ray actors: the same federation, in other processes."""

from collections.abc import Callable, Sequence
from typing import Any

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
from fedcome_ray.experiments.trial import Trial, check_plugin
from fedcome_ray.federation.sharding import (
    join_scores,
    join_states,
    part_of,
    split_chunks,
    split_cohort,
    split_states,
)
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import (
    Arrays,
    received_tensor,
    shared_tensor,
    to_arrays,
    to_tensors,
)
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import SharedPopulation

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
    ) -> None:
        """Serve this trial, as the shard with this number."""
        methods.load_plugins(plugins)
        settings = Trial.model_validate(trial)
        check_plugin(settings)
        self._shard = None  # its memory is needed for the next
        self._device = device.pick(self._place.gpus_per_shard)
        population, place = shared.fetch(), self._place
        part = part_of(population, settings, number, place.num_shards)
        self._shard = Shard(settings, population, self._device, place.memory_per_shard, part)

    def train(self, received: Any, clients: Cohort, round_index: int) -> tuple[Any, ...]:
        report = self.shard.train(to_tensors(received), clients, round_index)
        return tuple(field.numpy(force=True) for field in report.fields())

    def evaluate(self, params: Any, chunks: list[int], side: Side) -> Scores:
        return self.shard.evaluate(received_tensor(params), chunks, side)

    def computed_with(self) -> Arithmetic:
        return computed_with(self._device)

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
        self.actors = [self._start(number) for number in range(place.num_shards)]

    def replace_dead(self) -> None:
        for number, actor in enumerate(self.actors):
            try:
                ray.get(actor.__ray_ready__.remote())
            except ray.exceptions.RayActorError:
                self.actors[number] = self._start(number)

    def _start(self, number: int) -> Any:
        group = get_current_placement_group()
        strategy: Any = "DEFAULT"
        if group is not None:
            strategy = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=number + 1
            )
        return (
            ray.remote(ShardHost)
            .options(
                num_cpus=self.place.cpus_per_shard,
                num_gpus=self.place.gpus_per_shard,
                scheduling_strategy=strategy,
            )
            .remote(self.place)
        )


class RayShards:
    """The shards of one trial, behind the actors of a pool."""

    device = device.CPU  # reports come through the object store

    def __init__(
        self, trial: Trial, shared: SharedPopulation, pool: ShardPool, plugins: Sequence[str] = ()
    ) -> None:
        self.pool = pool
        self.population = shared.fetch()
        self._load_arguments = (trial.model_dump(mode="json"), list(plugins), shared)
        self._load()

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        message = ray.put(to_arrays(received))  # once, for all shards
        shares = split_cohort(cohort, self.population.num_clients, len(self.pool.actors))
        calls = [
            actor.train.remote(message, clients, round_index)
            for actor, clients in zip(self.pool.actors, shares, strict=True)
            if clients
        ]
        return [Report(*map(shared_tensor, fields)) for fields in _answers(calls)]

    def evaluate(self, params: Tensor, side: Side = "test") -> Evaluation:
        message = ray.put(params.numpy())
        split = self.population.side(side)
        shares = split_chunks(split, len(self.pool.actors))
        calls = [
            actor.evaluate.remote(message, chunks, side)
            for actor, chunks in zip(self.pool.actors, shares, strict=True)
            if chunks
        ]
        return join_scores(_answers(calls), split)

    def computed_with(self) -> Sequence[Arithmetic]:
        return _answers([actor.computed_with.remote() for actor in self.pool.actors])

    def export_states(self) -> Arrays:
        return join_states(_answers([actor.export_states.remote() for actor in self.pool.actors]))

    def restore_states(self, states: Arrays) -> None:
        actors = self.pool.actors
        shares = split_states(states, self.population.num_clients, len(actors))
        _answers(
            [
                actor.restore_states.remote(share)
                for actor, share in zip(actors, shares, strict=True)
            ]
        )

    def rebuild(self) -> None:
        self.pool.replace_dead()
        self._load()

    def _load(self) -> None:
        calls = [
            actor.load.remote(*self._load_arguments, number)
            for number, actor in enumerate(self.pool.actors)
        ]
        _answers(calls)


def _answers(calls: Sequence[Any]) -> list[Any]:
    """The results of calls to shards; the death of one is ours to handle, its errors are not."""
    try:
        return list(ray.get(list(calls)))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        raise ShardError(f"a shard died: {error}") from error
