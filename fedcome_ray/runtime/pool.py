"""Shard actors that serve one trial after the other."""

from typing import Any

import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fedcome_ray.runtime.host import ShardHost
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.waiting import AnswerTimes


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
                with self._times.waiting("ready") as seconds:
                    ray.get(actor.ready.remote(), timeout=seconds)
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
