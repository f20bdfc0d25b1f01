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
    slots: int  # trials that run at the same time
    _alike: dict[Kind, Seen] = field(default_factory=lambda: defaultdict(Seen))
    _akin: dict[Kind, Seen] = field(default_factory=lambda: defaultdict(Seen))
    _in_rounds: dict[str, float] = field(default_factory=dict)  # seconds by trial key
    _outside: list[float] = field(default_factory=list)  # seconds of trials that are over

    def heard(self, trial: Trial, rounds: Sequence[Round]) -> None:
        """Learn from rounds of this launch; a trial's first one also compiles and warms up."""
        is_new = trial.key not in self._in_rounds
        for one in rounds:
            seconds = one.seconds.get(metrics.SECONDS_ROUND, 0.0)
            self._in_rounds[trial.key] = self._in_rounds.get(trial.key, 0.0) + seconds
            if one.number == 0:
                continue
            if not is_new:
                for seen in (self._alike[alike(trial)], self._akin[akin(trial)]):
                    seen.add(self.cohorts[trial.key], seconds)
            is_new = False

    def ended(self, trial: Trial, seconds: float) -> None:
        """A trial is done, so long after it began: it also had to start and to write results."""
        self._outside.append(max(0.0, seconds - self._in_rounds.get(trial.key, 0.0)))

    def left(self, rounds_left: Mapping[Trial, int]) -> Left | None:
        """The time that these trials need together; None if nothing is known of any of them."""
        beside = mean(self._outside) if self._outside else 0.0
        known = {
            trial: rounds * seconds + (0 if trial.key in self._in_rounds else beside)
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
