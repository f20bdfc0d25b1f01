"""The trials of a launch on Ray Tune: the one module beside `runtime/` that knows Ray."""

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import ray
from ray import tune
from ray.air._internal import usage
from ray.tune.execution.class_cache import _ActorClassCache
from ray.tune.search import BasicVariantGenerator
from rich.console import Console

from fedcome_ray.console.exits import handling
from fedcome_ray.console.output import say, tell
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.launch.listener import Listener, Tracks
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.request import Request
from fedcome_ray.runtime.connection import replaced
from fedcome_ray.runtime.feasibility import Room, check_folder, check_storage, lay_out
from fedcome_ray.runtime.placement import TrialPlace, words
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.trial_actor import TrialActor
from fedcome_ray.runtime.waiting import PATIENCE_SECONDS, Patience, pending_trials
from fedcome_ray.storage.lease import Lease
from fedcome_ray.trials.origin import command_line

# Restarts of a trial whose process or node died; its own errors are not repeated.
MAX_DEATHS = 5
# How often nodes that have joined or left are looked for.
LOOK_SECONDS = 1.0


def run_trials(
    request: Request,
    trials: Sequence[Trial],
    populations: MutableMapping[str, Population],
    tracker: Tracks,
    console: Console,
    lease: Lease | None = None,
) -> Outcome:
    """Hand the trials to Tune and listen; their populations move to the object store.

    With a lease, trials are kept in its storage.
    """
    placement, unused_gpus = lay_out(request.machine, len(trials))
    check_output = (
        partial(check_folder, request.locations.output)
        if lease is None
        else partial(check_storage, lease.remote)
    )
    check_output()
    if unused_gpus is not None:
        say(console, unused_gpus, "yellow")
    tell(console, words(placement))
    cohorts = {
        trial.key: trial.cohort_size_of(populations[trial.data.model_dump_json()].num_clients)
        for trial in trials
    }
    start = time.monotonic()
    # Tune would leave its own handler of Ctrl-C behind.
    as_before = handling(signal.SIGINT, signal.getsignal(signal.SIGINT) or signal.SIG_DFL)
    with as_before, Progress(console, trials, cohorts, placement.concurrent) as progress:
        listener = Listener(request, trials, tracker, progress)
        patience = Patience(pending_trials, lambda line: say(console, line), PATIENCE_SECONDS)
        turns = BasicVariantGenerator(max_concurrent=placement.concurrent)
        room = Room(request.machine, len(trials), placement.trial, check_output)
        callback = Callback(listener, trials, turns, room, patience)
        _fit(request, trials, populations, placement.trial, turns, callback, lease)
    listener.outcome.slot_seconds = (time.monotonic() - start) * placement.concurrent
    listener.close()
    return listener.outcome


def _fit(
    request: Request,
    trials: Sequence[Trial],
    populations: MutableMapping[str, Population],
    place: TrialPlace,
    turns: BasicVariantGenerator,
    callback: "Callback",
    lease: Lease | None,
) -> None:
    trainable = tune.with_parameters(
        TrialActor,
        trials={trial.key: trial.model_dump(mode="json") for trial in trials},
        populations=share(populations),
        place=place,
        trials_folder=request.trials_folder,
        lease=lease,
        plugins=list(request.locations.plugins),
        command=command_line(),
        init_params=request.init_params,
        pause_after=request.pause_after,
        system_metrics=request.extras.system_metrics,
    )
    bundles = placement_group(place)
    scratch = tempfile.mkdtemp(prefix="fedcome-tune-")
    tuner = tune.Tuner(
        tune.with_resources(trainable, bundles),
        # Only their keys: Tune copies the whole list for each of them.
        param_space={"key": tune.grid_search([trial.key for trial in trials])},
        tune_config=tune.TuneConfig(search_alg=turns, reuse_actors=True),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=scratch,
            failure_config=tune.FailureConfig(max_failures=MAX_DEATHS),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            callbacks=[callback],
            verbose=0,
        ),
    )
    try:
        with _quick_to_start(is_private=request.machine.address is None):
            tuner.fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _quick_to_start(*, is_private: bool) -> Iterator[None]:
    """Keep Tune from what takes seconds and serves nobody here.

    To count who uses its callback for MLflow, it imports all of MLflow. And it gives actors an
    environment of variables, which those of a private Ray have anyway, but for which Ray starts
    other processes than the ones it has started ahead.
    """
    with ExitStack() as stack:
        stack.enter_context(replaced(usage, "tag_callbacks", lambda _: False))
        if is_private:
            stack.enter_context(replaced(_ActorClassCache, "get", staticmethod(cache(ray.remote))))
        yield


def placement_group(place: TrialPlace) -> tune.PlacementGroupFactory:
    """The resources of a trial, as Tune asks Ray for them."""
    selectors = [place.label_selector(bundle) for bundle in place.bundles]
    where = {"bundle_label_selector": selectors} if any(selectors) else {}
    return tune.PlacementGroupFactory(place.bundles, strategy="PACK", **where)


class Callback(tune.Callback):
    """Passes on what Tune tells of its trials, as ours."""

    def __init__(
        self,
        listener: Listener,
        trials: Sequence[Trial],
        turns: BasicVariantGenerator,
        room: Room,
        patience: Patience,
    ) -> None:
        self._listener = listener
        self._turns, self._room, self._patience = turns, room, patience
        self._looked = time.monotonic()
        self._trials = {trial.key: trial for trial in trials}
        self._is_watching = False

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Say that Ctrl-C was heard: Tune, which handles it, says so only in the log."""
        if self._is_watching or threading.current_thread() is not threading.main_thread():
            return
        self._is_watching = True
        handle = signal.getsignal(signal.SIGINT)

        def acknowledge(number: int, frame: Any) -> None:
            self._listener.stopping()
            if callable(handle):
                handle(number, frame)

        signal.signal(signal.SIGINT, acknowledge)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks for a restore that we do not use

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Tune calls it ten times a second, also while it waits."""
        self._listener.check()
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._turns.max_concurrent = self._room.now()
            self._looked = time.monotonic()
        running = sum(trial.status == "RUNNING" for trial in trials)
        waiting = sum(trial.status == "PENDING" for trial in trials)
        self._patience.look(waiting > 0 and running < self._turns.max_concurrent)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._listener.started(self._own(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._listener.heard(self._own(trial), result["news"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._listener.completed(self._own(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_pickled_error()
        cause = str(error or "").strip().splitlines()[-1:] or [type(error).__name__]
        why = f"its process died more than {MAX_DEATHS} times: {cause[0]}"
        self._listener.failed(self._own(trial), why)

    def _own(self, trial: Any) -> Trial:
        return self._trials[trial.config["key"]]
