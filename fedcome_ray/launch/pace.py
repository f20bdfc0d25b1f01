"""How long trials have to go, by the rounds that were seen of their kind in this launch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import NamedTuple

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round

Kind = tuple[object, ...]
ENOUGH = 3
"""Rounds that must have been seen before they say anything."""


@dataclass
class Seen:
    """The rounds of some trials."""

    rounds: int = 0
    updates: int = 0  # of clients
    seconds: float = 0.0

    def add(self, updates: int, seconds: float) -> None:
        self.rounds += 1
        self.updates += updates
        self.seconds += seconds

    def per_update(self) -> float | None:
        return self.seconds / self.updates if self.rounds >= ENOUGH else None


class Left(NamedTuple):
    """What is left of a launch, as far as one can tell."""

    seconds: float
    is_all: bool  # else some trials are of a kind of which nothing was seen


@dataclass
class Pace:
    """Measures rounds, and from them what is left.

    The time of a round is that of its client updates: by trials that differ in the seed alone, or
    else by all that have the same data, model and local training.
    """

    cohorts: Mapping[str, int]  # by trial key
    slots: int = 1  # trials that run at the same time, by now
    _alike: dict[Kind, Seen] = field(default_factory=lambda: defaultdict(Seen))
    _akin: dict[Kind, Seen] = field(default_factory=lambda: defaultdict(Seen))
    _beside: dict[str, float] = field(default_factory=dict)
    """Seconds outside of rounds, by the keys of trials that have begun."""
    _over: list[float] = field(default_factory=list)  # the same of those that are over

    def heard(self, trial: Trial, rounds: Sequence[Round], beside: float = 0.0) -> None:
        """Learn from rounds of this launch, and from the seconds that the trial spent beside them.

        A trial's first round also compiles and warms up.
        """
        key = trial.key
        is_new = key not in self._beside
        self._beside[key] = self._beside.get(key, 0.0) + beside
        usual = [one for one in rounds if one.number > 0][is_new:]
        if not usual:
            return
        for seen in (self._alike[alike(trial)], self._akin[akin(trial)]):
            for one in usual:
                seen.add(self.cohorts[key], one.seconds.get(metrics.SECONDS_ROUND, 0.0))

    def ended(self, trial: Trial) -> None:
        """A trial is done: what it spent to start and to write results, others will spend."""
        self._over.append(self._beside.get(trial.key, 0.0))

    def left(self, rounds_left: Mapping[Trial, int]) -> Left | None:
        """The time that these trials need together; None if nothing is known of any of them."""
        beside = mean(self._over) if self._over else 0.0
        known = {
            trial: rounds * seconds + (0 if trial.key in self._beside else beside)
            for trial, rounds in rounds_left.items()
            if (seconds := self._seconds_per_round(trial)) is not None
        }
        if not known:
            return None
        together = max(sum(known.values()) / self.slots, *known.values())
        return Left(together, is_all=len(known) == len(rounds_left))

    def _seconds_per_round(self, trial: Trial) -> float | None:
        for seen in (self._alike.get(alike(trial)), self._akin.get(akin(trial))):
            per_update = seen.per_update() if seen is not None else None
            if per_update is not None:
                return per_update * self.cohorts[trial.key]
        return None


def alike(trial: Trial) -> Kind:
    """What trials have in common that differ in their seeds and lengths."""
    share = trial.participation, trial.cohort_size
    evaluations = trial.eval_every, trial.eval_personal_epochs
    return *akin(trial), trial.method, trial.sampler, *share, trial.availability, *evaluations


def akin(trial: Trial) -> Kind:
    return trial.data, trial.model, trial.local
