"""Listens to the trials of a launch, and tells the display, the tracker and the outcome."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.request import Request
from fedcome_ray.trials.news import News


class Tracks(Protocol):
    """What a listener tells a tracker, and asks it."""

    def check_usable(self) -> None: ...
    def trial_started(self, trial: Trial) -> None: ...
    def trial_advanced(self, trial: Trial, rounds: Sequence[Round]) -> None: ...
    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None: ...


class Listener:
    """Follows every trial from its start to its end, through restarts of its process."""

    def __init__(
        self,
        request: Request,
        trials: Sequence[Trial],
        tracker: Tracks,
        progress: Progress,
        slots: int,
    ) -> None:
        """`slots` are the trials that run at the same time."""
        self.outcome = Outcome({trial.key for trial in trials})
        self._request = request
        self._trials = {trial.key: trial for trial in trials}
        self._tracker = tracker
        self._progress = progress
        self._started: set[str] = set()
        self._last_counted: dict[str, int] = {}  # trial key -> number of a round
        self._slots, self._slots_since = slots, time.monotonic()
        progress.has_slots(slots)

    def stopping(self) -> None:
        """Ctrl-C was pressed; may be told from within a signal handler."""
        self._progress.stopping()

    def has_slots(self, slots: int) -> None:
        """So many trials run at the same time from now on: nodes come and go."""
        now = time.monotonic()
        self.outcome.slot_seconds += (now - self._slots_since) * self._slots
        self._slots, self._slots_since = slots, now
        self._progress.has_slots(slots)

    def check(self) -> None:
        """Refuse to go on without a store: it is opened while the first trials start."""
        self._tracker.check_usable()

    def started(self, trial: Trial) -> None:
        if trial.key not in self._started:  # else it is a restart
            self._started.add(trial.key)
            self._progress.started(trial)
            self._tracker.trial_started(trial)

    def heard(self, trial: Trial, news: News) -> None:
        if self.outcome.has_ended(trial.key):
            return  # told again by a process that took over from another
        self.started(trial)
        if trial.key not in self._last_counted:
            self._last_counted[trial.key] = news.num_restored or -1
            self._progress.resumed(trial, news.num_restored)
        for incident in news.incidents:
            self._progress.survived(trial, incident)
        self._progress.advanced(trial, news.rounds, sum(news.seconds.values()))
        self._tracker.trial_advanced(trial, news.rounds)
        self._count(trial, news.rounds)
        _add(self.outcome.outside, news.seconds)
        if news.failure is not None:
            self.failed(trial, news.failure)
        elif news.is_finished:
            self.outcome.finished.add(trial.key)
            self._progress.ended(trial, "done")
            self._tracker.trial_ended(trial, "FINISHED", self._request.folder(trial))
        elif news.is_paused:
            self.outcome.stopped.add(trial.key)
            self._progress.ended(trial, "stopped")
            self._tracker.trial_ended(trial, "KILLED", self._request.folder(trial))

    def failed(self, trial: Trial, why: str) -> None:
        self.outcome.failures[trial.key] = why
        self._progress.ended(trial, "failed", why)
        self._tracker.trial_ended(trial, "FAILED", self._request.folder(trial))

    def close(self) -> None:
        """Mark the trials that were interrupted, and count the time of all to the end."""
        self.has_slots(self._slots)
        for key in self._started - self.outcome.ended:
            trial = self._trials[key]
            self._progress.ended(trial, "interrupted")
            self._tracker.trial_ended(trial, "KILLED", self._request.folder(trial))

    def _count(self, trial: Trial, rounds: Sequence[Round]) -> None:
        """Count what this launch computed, once: a restarted trial hands out its history again."""
        key = trial.key
        fresh = [one for one in rounds if one.number > self._last_counted[key]]
        for one in fresh:
            self._last_counted[key] = one.number
            _add(self.outcome.phases, one.seconds)


def _add(totals: dict[str, float], seconds: Mapping[str, float]) -> None:
    for name, value in seconds.items():
        totals[name] += value
