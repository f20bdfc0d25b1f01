"""The trials of a launch on Ray Tune: the one module beside `runtime/` that knows Ray."""

import signal
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
from fedcome_ray.launch.turns import Turns
from fedcome_ray.runtime import scratch, session
from fedcome_ray.runtime.feasibility import Room, check_folder, check_storage, lay_out
from fedcome_ray.runtime.placement import TrialPlace, words
from fedcome_ray.runtime.populations import share, with_own_files
from fedcome_ray.runtime.replacing import replaced
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
    # Tune would leave its own handler of Ctrl-C behind.
    as_before = handling(signal.SIGINT, signal.getsignal(signal.SIGINT) or signal.SIG_DFL)
    with as_before, Progress(console, trials, cohorts) as progress:
        listener = Listener(request, trials, tracker, progress, placement.concurrent)
        patience = Patience(pending_trials, lambda line: say(console, line), PATIENCE_SECONDS)
        turns = Turns(trial.key for trial in trials)
        offers = Offers(turns, placement.concurrent)
        room = Room(request.machine, len(trials), placement.trial, check_output)
        callback = Callback(listener, trials, turns, offers, room, patience)
        _fit(request, trials, populations, placement.trial, offers, callback, lease)
    listener.close()
    return listener.outcome


def _fit(
    request: Request,
    trials: Sequence[Trial],
    populations: MutableMapping[str, Population],
    place: TrialPlace,
    offers: "Offers",
    callback: "Callback",
    lease: Lease | None,
) -> None:
    shared = share(populations)
    if request.machine.address is not None:
        configs = {trial.data.model_dump_json(): trial.data for trial in trials}
        shared = with_own_files(shared, configs, request.locations.data_dir)
    trainable = tune.with_parameters(
        TrialActor,
        trials={trial.key: trial.model_dump(mode="json") for trial in trials},
        populations=shared,
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
    with scratch.folder("tune") as folder:
        tuner = tune.Tuner(
            tune.with_resources(trainable, bundles),
            # A turn ends at least one trial, or else these are handed out once more.
            tune_config=tune.TuneConfig(
                search_alg=offers, num_samples=2 * len(trials), reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(folder),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[callback],
                verbose=0,
            ),
        )
        with _quick_to_start(is_private=request.machine.address is None):
            tuner.fit()


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


class Offers(BasicVariantGenerator):
    """Hands Tune a turn whenever it has room for one; Tune calls it a trial."""

    def __init__(self, turns: Turns, slots: int) -> None:
        super().__init__(max_concurrent=slots)
        self._turns = turns

    def next_trial(self) -> Any:
        turn: Any = super().next_trial() if self._turns else None  # type: ignore[no-untyped-call]
        if turn is not None:
            turn.config["keys"] = self._turns.take(self.max_concurrent)
            turn.max_failures = 0 if len(turn.config["keys"]) > 1 else MAX_DEATHS
        return turn

    def is_finished(self) -> bool:
        """Turns that are under way may give trials back."""
        return self._finished or not (self._turns or self._live_trials)


class Callback(tune.Callback):
    """Passes on what Tune tells of turns, as news of their trials."""

    def __init__(
        self,
        listener: Listener,
        trials: Sequence[Trial],
        turns: Turns,
        offers: Offers,
        room: Room,
        patience: Patience,
    ) -> None:
        self._listener = listener
        self._turns, self._offers, self._room, self._patience = turns, offers, room, patience
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
            self._offers.max_concurrent = self._room.now()
            self._listener.has_slots(self._offers.max_concurrent)
            self._looked = time.monotonic()
        running = sum(turn.status == "RUNNING" for turn in trials)
        waiting = sum(turn.status == "PENDING" for turn in trials)
        self._patience.look(waiting > 0 and running < self._offers.max_concurrent)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for key in trial.config["keys"][:1]:
            self._listener.started(self._trials[key])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        for key, news in result["news"]:
            self._listener.heard(self._trials[key], news)
        given_back = result["given_back"]
        # What is left is what another process would have to do, if Tune restarts the turn.
        trial.config["keys"] = [key for key in self._left(trial) if key not in given_back]
        self._turns.back(given_back)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The process died; with a single trial, again and again."""
        session.keep()
        left = self._left(trial)
        if not trial.max_failures:
            self._turns.suspect(left)
            return
        error = trial.get_pickled_error()
        cause = str(error or "").strip().splitlines()[-1:] or [type(error).__name__]
        why = f"its process died more than {MAX_DEATHS} times: {cause[0]}"
        for key in left:
            self._listener.failed(self._trials[key], why)

    def _left(self, turn: Any) -> list[str]:
        """The trials of a turn that have not ended."""
        has_ended = self._listener.outcome.has_ended
        return [key for key in turn.config["keys"] if not has_ended(key)]
