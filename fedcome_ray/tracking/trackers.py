"""Several trackers of one store, each for its share of the trials.

A server takes its time for every request but answers several at once, and a launch of small trials
ends more of them than could be written one after the other.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol, Self

from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round
from fedcome_ray.tracking.address import SERVERS
from fedcome_ray.tracking.tracker import Tracker

BESIDE_EACH_OTHER = 3
"""Trackers of a server, each with a process of 0.2 GB; more of them would only wait for it."""


def most_trackers(uri: str) -> int:
    """A file or a database has one: two would wait for each other, or gain little."""
    return BESIDE_EACH_OTHER if uri.startswith(SERVERS) else 1


class Once:
    """Says each line once, whichever thread has it first."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, line: str) -> None:
        with self._lock:
            if line not in self._said:
                self._said.add(line)
                self._say(line)


class MakeTracker(Protocol):
    """Makes one, perhaps `beside` another of the same store."""

    def __call__(self, *, beside: Tracker | None) -> Tracker: ...


class Trackers:
    """Up to so many trackers, each made when there is something to write for it."""

    def __init__(self, make: MakeTracker, most: int) -> None:
        self.is_patient = True  # whether the end waits for a store that fails
        self._make = make
        self._made: dict[int, Tracker] = {}
        self._next = cycle(range(most))
        self._number_of: dict[str, int] = {}  # by trial key: all that is told of one stays in order

    def check_open(self) -> None:
        """Block until the experiment is there; refuse a store that cannot be opened."""
        self._tracker(0)
        for tracker in self._made.values():
            tracker.check_open()

    def check_usable(self) -> None:
        """Refuse a store that could not be opened; one that is being opened may take its time."""
        for tracker in self._made.values():
            tracker.check_usable()

    @property
    def complaint(self) -> str | None:
        """What is wrong with the store, for people; None if it has all that it was told."""
        complaints = (tracker.complaint for tracker in self._made.values())
        return next((one for one in complaints if one is not None), None)

    def trial_started(self, trial: Trial) -> None:
        self._of(trial).trial_started(trial)

    def trial_advanced(self, trial: Trial, rounds: Iterable[Round]) -> None:
        self._of(trial).trial_advanced(trial, rounds)

    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None:
        """`status` is MLflow's: FINISHED, FAILED or KILLED."""
        self._of(trial).trial_ended(trial, status, folder)

    def mirror(self, trial: Trial, folder: Path) -> None:
        """Make sure that a trial finished in an earlier launch is in this store too."""
        self._of(trial).mirror(trial, folder)

    def launch_ended(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        self._tracker(0).launch_ended(params, metrics, texts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for tracker in self._made.values():
            tracker.is_patient = self.is_patient and error is None
            tracker.finish()  # all of them, before any is waited for
        for tracker in self._made.values():
            tracker.close()

    def _of(self, trial: Trial) -> Tracker:
        if trial.key not in self._number_of:
            self._number_of[trial.key] = next(self._next)
        return self._tracker(self._number_of[trial.key])

    def _tracker(self, number: int) -> Tracker:
        if number not in self._made:
            first = self._tracker(0) if number else None
            self._made[number] = self._make(beside=first)
        return self._made[number]
