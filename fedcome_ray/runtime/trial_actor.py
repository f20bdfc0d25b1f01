"""A trial as Ray Tune sees it: the central actor of a federation.

The actor is the server, and the first of its shards is a part of it; others, if there are any, are
actors of their own in the same placement group. What Tune calls a trial is a turn of the actor,
with one or several of ours; Tune reuses it, and its shards with it, for the next turn
(`reset_config`).
"""

import os
import resource
import shutil
import sys
from collections import defaultdict, deque
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from ray import tune

from fedcome_ray.errors import FedcomeError, StorageError
from fedcome_ray.experiments.trial import Trial, check_plugins
from fedcome_ray.federation.round import Round
from fedcome_ray.numerics import device
from fedcome_ray.plugins import load_plugins
from fedcome_ray.runtime import scratch
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import SharedPopulation
from fedcome_ray.runtime.shards import in_a_pool, in_this_process
from fedcome_ray.storage.lease import Lease
from fedcome_ray.storage.remote import patiently
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials.folder import (
    exclusive,
    kept_copy,
    log_error,
    read_own_result,
    read_rounds,
)
from fedcome_ray.trials.news import News
from fedcome_ray.trials.origin import keep_origin
from fedcome_ray.trials.run import TrialRun

REPORT_SECONDS = 1.0
"""Between two reports: one costs more than a small round."""
TURN_SECONDS = 10.0
"""After which no further trial of a turn is begun."""


class TrialActor(tune.Trainable):
    """Runs one trial after the other; a failed one is reported, not raised.

    Tune repeats trials that raise, in another process. Here only the death of a process or a node
    is worth repeating, which Tune notices by itself, and the loss of a GPU, which this process will
    never compute on again; an error of the trial would come again.
    """

    def setup(  # type: ignore[override]  # the further arguments come from tune.with_parameters
        self,
        config: dict[str, Any],
        *,
        trials: dict[str, dict[str, Any]],
        populations: dict[str, SharedPopulation],
        place: TrialPlace,
        trials_folder: Path,
        lease: Lease | None,
        plugins: list[str],
        command: str,
        init_params: torch.Tensor | None,
        pause_after: int | None,
        system_metrics: bool,
    ) -> None:
        load_plugins(plugins)
        self._trials = trials  # by key
        self._populations = populations
        self._lease = lease  # of the storage that trials are kept in, if it is one
        self._scratch = scratch.make("trials") if lease is not None else None
        self._trials_folder = self._scratch or trials_folder
        self._command = command
        self._init_params = init_params
        self._pause_after = pause_after
        self._system_metrics = system_metrics
        self._make_shards = (
            in_a_pool(place, plugins) if place.num_actors else in_this_process(place)
        )
        self._resources = ExitStack()  # the lock of the trial's folder
        self._kept: WorkingCopy | None = None  # the folder, if it goes with a storage
        self._trial_run: TrialRun | None = None
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._cpu_seconds_before = process_time()
        self._last_answer = perf_counter()
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take a turn without touching a folder: Tune may hand it to another actor instead."""
        self._leave()  # a trial that was interrupted
        self._take(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Run trials for a while: what there is to tell of each, and if the turn is over."""
        self._spent["report"] += perf_counter() - self._last_answer
        end = perf_counter() + REPORT_SECONDS
        told: list[tuple[str, News]] = []
        is_over = False
        while not is_over and perf_counter() < end:
            news = self._run(end)
            told.append((self._trial.key, news))
            is_over = news.is_over and not self._take_next()
        self._last_answer = perf_counter()
        return {"news": told, "given_back": self._give_back(), "done": is_over}

    def cleanup(self) -> None:
        """Tune stops the actor, perhaps in the middle of a trial: leave it ready to go on."""
        try:
            self._leave()
        finally:
            if self._scratch is not None:
                scratch.remove(self._scratch)

    def _take(self, config: dict[str, Any]) -> None:
        first, *others = config["keys"]
        self._trial = self._named(first)
        self._waiting = deque[str](others)
        self._last_answer = perf_counter()
        self._turn_end = self._last_answer + TURN_SECONDS

    def _take_next(self) -> bool:
        """Whether the turn has another trial, and time for it."""
        if not self._waiting or perf_counter() >= self._turn_end:
            return False
        self._trial = self._named(self._waiting.popleft())
        return True

    def _give_back(self) -> list[str]:
        """What the turn has no time for, so that others can take it."""
        if perf_counter() < self._turn_end:
            return []
        given, self._waiting = list(self._waiting), deque()
        return given

    def _named(self, key: str) -> Trial:
        return Trial.model_validate(self._trials[key])

    @property
    def _folder(self) -> Path:
        return self._trials_folder / self._trial.folder_name

    def _run(self, end: float) -> News:
        """Run the trial up to this time, or to its own end."""
        try:
            news = self._advance(end)
        except Exception as error:  # reported with its cause, and the grid goes on
            self._fail(error)
            if device.is_lost(error):
                raise
            kind = "" if isinstance(error, FedcomeError) else f"{type(error).__name__}: "
            news = News(failure=f"{kind}{error}")
        spent, self._spent = self._spent, defaultdict(float)
        return replace(news, seconds=dict(spent))

    def _advance(self, end: float) -> News:
        start = perf_counter()
        if self._trial_run is None:
            self._trial_run = self._open()
            self._spent["start"] += perf_counter() - start
        run = self._trial_run
        if run is None:
            rounds = read_rounds(self._folder)
            self._close()
            return _news(rounds, rounds[-1].number, is_finished=True)
        checkpoints = run.checkpoint_seconds
        rounds = run.advance(end - perf_counter(), self._pause_after)
        self._spent["checkpoint"] += run.checkpoint_seconds - checkpoints
        if self._system_metrics and rounds:
            used = system_metrics(self._cpu_seconds_before)
            rounds[-1] = replace(rounds[-1], metrics={**rounds[-1].metrics, **used})
        if run.is_finished:
            last = perf_counter()
            run.finish()
            self._close()
            self._spent["finish"] += perf_counter() - last
        is_paused = not run.is_finished and run.rounds_done == self._pause_after
        if is_paused:
            self._leave()
        news = _news(rounds, run.num_restored, is_finished=run.is_finished)
        return replace(news, is_paused=is_paused, incidents=run.take_incidents())

    def _open(self) -> TrialRun | None:
        """The trial, ready to go on; None if another process has finished it in the meantime."""
        self._cpu_seconds_before = process_time()
        check_plugins(self._trial)
        self._resources.enter_context(exclusive(self._folder))
        kept = None
        if self._lease is not None:
            kept = self._kept = kept_copy(self._folder, self._lease)
            patiently(kept.pull)
        if read_own_result(self._folder) is not None:
            return None
        keep_origin(self._trial, self._folder, self._command)
        shared = self._populations[self._trial.data.model_dump_json()]
        shards = self._make_shards(self._trial, shared)
        return TrialRun(
            self._trial, shards.population, shards, self._folder, self._init_params, kept
        )

    def _fail(self, error: Exception) -> None:
        """Keep what is known of an error with the trial, in its storage too if that can be."""
        log_error(self._folder, error)
        if self._kept is not None:
            with suppress(StorageError):
                self._kept.push()
        self._close()

    def _leave(self) -> None:
        try:
            if self._trial_run is not None:
                self._trial_run.checkpoint()
        finally:
            self._close()

    def _close(self) -> None:
        self._trial_run = None
        self._resources.close()
        if self._scratch is not None:
            self._kept = None
            shutil.rmtree(self._folder, ignore_errors=True)


def _news(rounds: list[Round], num_restored: int, *, is_finished: bool) -> News:
    slim = [replace(one, cohort=(), absent=()) for one in rounds]
    return News(slim, num_restored, is_finished=is_finished)


def system_metrics(cpu_seconds_before: float) -> dict[str, float]:
    """What this process has used for its trial, how large it ever was, how busy its machine is."""
    units_of_a_megabyte = 2**20 if sys.platform == "darwin" else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "system/peak_memory_mb": peak / units_of_a_megabyte,
        "system/cpu_seconds": process_time() - cpu_seconds_before,
        "system/load": os.getloadavg()[0],
    }
