"""A launch: the pending trials of a grid on Ray Tune, watched, tracked and summed up."""

import io
import math
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from rich.console import Console
from rich.table import Table

from fedcome_ray import datasets
from fedcome_ray.console import cli_old as cli
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments import overlay
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.launch import plan_old as plan
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.summary import result_table
from fedcome_ray.runtime import cluster_old as cluster
from fedcome_ray.runtime.trial_actor import TrialActor
from fedcome_ray.tracking.store import check_uri
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.trials import timeline as trace
from fedcome_ray.trials.provenance import cautions, commits
from fedcome_ray.trials.run import check_fits, exclusive, read_result

# Restarts of a trial whose process or node died; its own errors are not repeated.
MAX_DEATHS = 5


@dataclass(frozen=True)
class Request:
    """What to run, and how; none of the machine's settings changes a result."""

    grid_name: str
    profile: str
    trials: Sequence[Trial]
    output: Path
    tracking_uri: str
    data_dir: Path | None = None
    plugins: Sequence[str] = ()
    address: str | None = None
    num_shards: int | None = None
    cpus_per_shard: float | None = None
    gpus_per_shard: float | None = None
    memory_per_shard: int | None = None
    max_concurrent: int | None = None
    timing: bool = False
    trace: bool = False
    system_metrics: bool = False
    best: Path | None = None
    asha: bool = False  # stop the worse trials early
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))

    @property
    def log(self) -> Path:
        """Where libraries print to while the launch runs."""
        return self.output / "logs" / f"{self.name}.log"

    def folder(self, trial: Trial) -> Path:
        return self.output / "trials" / trial.folder_name

    def result(self, trial: Trial) -> dict[str, Any] | None:
        return read_result(self.folder(trial))

    def is_over(self, trial: Trial) -> bool:
        """Finished, or stopped early by a search like this one."""
        return self.result(trial) is not None or (self.asha and self.stop_mark(trial).exists())

    def stop_mark(self, trial: Trial) -> Path:
        """A file in the folder of a trial that was stopped early."""
        return self.folder(trial) / "stopped"

    def layout(self, num_trials: int, cpus: float, gpus: float) -> plan.Layout:
        return plan.lay_out(
            num_trials,
            cpus,
            gpus,
            self.num_shards,
            self.cpus_per_shard,
            self.gpus_per_shard,
            self.max_concurrent,
            self.memory_per_shard,
        )


@dataclass
class Outcome:
    """What happened to the trials that a launch had to run."""

    num_pending: int
    finished: set[str] = field(default_factory=set)  # trial keys
    failures: dict[str, str] = field(default_factory=dict)  # trial key -> why
    stopped: set[str] = field(default_factory=set)  # trial keys: early, for others did better
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds of all rounds by phase."""
    outside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds that trials spent outside of their rounds, by what they did."""
    slot_seconds: float = 0.0  # wall time of the grid times the trials that ran at once

    @property
    def ended(self) -> set[str]:
        """The trials that are over, one way or the other."""
        return self.finished | self.stopped | set(self.failures)

    @property
    def exit_code(self) -> int:
        return cli.FAILED if self.failures or self.is_interrupted else cli.OK

    @property
    def is_interrupted(self) -> bool:
        return len(self.ended) < self.num_pending

    @property
    def overhead(self) -> float:
        """Seconds that a trial spent outside of its rounds, on average."""
        return (self.slot_seconds - self.phases["seconds/round"]) / max(1, len(self.finished))


def launch(request: Request, out: Console, console: Console) -> Outcome:
    """Run what is not finished, show what there is: progress on `console`, results on `out`."""
    check_uri(request.tracking_uri)
    populations = load_populations(request)
    # One launch at a time: its driver is the only writer of the default store, which is SQLite.
    with exclusive(request.output, patience=0):
        pending = [trial for trial in request.trials if not request.is_over(trial)]
        outcome = Outcome(num_pending=len(pending))
        tags = {"grid": request.grid_name, "profile": request.profile, "launch": request.name}
        artifacts = request.output / "artifacts"
        tracker = Tracker(request.tracking_uri, request.grid_name, artifacts, tags)
        try:
            for trial in request.trials:
                if request.result(trial) is not None:
                    tracker.mirror(trial, request.folder(trial))
            if pending:
                with cluster.connected(request.address, console):
                    tracker.check_open()
                    run_trials(request, pending, populations, tracker, console, outcome)
            tracker.check_open()
            tracker.launch_ended(*launch_record(request, outcome))
        finally:
            tracker.close()
    show_results(request, out)
    conclude(request, outcome, tracker, out)
    return outcome


def load_populations(request: Request) -> dict[str, Population]:
    """The population of each data configuration; what does not fit is found before Ray starts."""
    populations: dict[str, Population] = {}
    for trial in request.trials:
        key = trial.data.model_dump_json()
        if key not in populations:
            populations[key] = datasets.load(trial.data, request.data_dir)
        check_fits(trial, populations[key])
    return populations


def run_trials(
    request: Request,
    trials: Sequence[Trial],
    populations: Mapping[str, Population],
    tracker: Tracker,
    console: Console,
    outcome: Outcome,
) -> None:
    """Hand the trials to Tune and listen."""
    resources = ray.cluster_resources()
    layout = request.layout(len(trials), resources.get("CPU", 0), resources.get("GPU", 0))
    cluster.check_feasible(layout.machine)
    cluster.check_storage(request.output)
    console.print(f"{len(trials)} trials, {plan.words(layout)}", highlight=False)
    trainable = tune.with_parameters(
        TrialActor,
        populations=cluster.share(populations),
        machine=layout.machine,
        trials_folder=request.output / "trials",
        plugins=list(request.plugins),
        # Early stopping looks at every round; else a report costs more than a small round.
        report_seconds=0.0 if request.asha else 1.0,
        system_metrics=request.system_metrics,
    )
    cohorts = {
        trial.key: trial.cohort_size_of(populations[trial.data.model_dump_json()].num_clients)
        for trial in trials
    }
    specs = [{"key": t.key, "trial": t.model_dump(mode="json")} for t in trials]
    scratch = tempfile.mkdtemp(prefix="fedcome-tune-")
    start = time.monotonic()
    try:
        with Progress(console, trials, cohorts) as progress:
            listener = Listener(request, trials, tracker, progress, outcome)
            tune.Tuner(
                tune.with_resources(
                    trainable, tune.PlacementGroupFactory(layout.machine.bundles, strategy="PACK")
                ),
                param_space={"spec": tune.grid_search(specs)},
                tune_config=tune.TuneConfig(
                    max_concurrent_trials=layout.concurrent,
                    reuse_actors=True,
                    scheduler=early_stopping(trials) if request.asha else None,
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=scratch,
                    failure_config=tune.FailureConfig(max_failures=MAX_DEATHS),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                    callbacks=[listener],
                    verbose=0,
                ),
            ).fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    outcome.slot_seconds = (time.monotonic() - start) * layout.concurrent
    listener.close()


def early_stopping(trials: Sequence[Trial]) -> ASHAScheduler:
    """Successive halving: after 1/9 and 1/3 of the rounds only the best third goes on."""
    rounds = max(trial.rounds for trial in trials)
    return ASHAScheduler(
        time_attr="rounds_done",
        metric="accuracy",
        mode="max",
        max_t=rounds,
        grace_period=math.ceil(rounds / 9),
        reduction_factor=3,
    )


class Listener(tune.Callback):
    """Passes what Tune reports on to the display and to the tracker."""

    def __init__(
        self,
        request: Request,
        trials: Sequence[Trial],
        tracker: Tracker,
        progress: Progress,
        outcome: Outcome,
    ) -> None:
        self.outcome = outcome
        self._request = request
        self._trials = {trial.key: trial for trial in trials}
        self._tracker = tracker
        self._progress = progress
        self._started: set[str] = set()
        self._next_round: dict[str, int] = {}  # trial key -> the first round not yet counted

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks for a restore that we do not use

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        own = self._own(trial)
        if own.key not in self._started:  # else it is a restart
            self._started.add(own.key)
            self._progress.started(own)
            self._tracker.trial_started(own)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        own, lines = self._own(trial), result["lines"]
        if own.key not in self._next_round:
            self._next_round[own.key] = result["num_restored"]
            self._progress.resumed(own, result["num_restored"])
        self._progress.advanced(own, lines)
        self._tracker.trial_advanced(own, lines)
        # A restarted trial hands out its history again: count what this launch computed, once.
        fresh = [line for line in lines if line["round"] >= self._next_round[own.key]]
        self._next_round[own.key] += len(fresh)
        for line in fresh:
            for phase, seconds in line["seconds"].items():
                self.outcome.phases[phase] += seconds
        for action, seconds in result["seconds"].items():
            self.outcome.outside[action] += seconds
        if result["failure"] is not None:
            self._end(own, "FAILED", result["failure"])
        elif result["finished"]:  # Tune says `done` of trials that it stops early, too
            self._end(own, "FINISHED")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        own = self._own(trial)
        if self._request.asha and own.key not in self.outcome.ended:
            self.outcome.stopped.add(own.key)
            self._request.stop_mark(own).touch()
            self._progress.ended(own, "stopped")
            self._tracker.trial_ended(own, "KILLED", self._request.folder(own))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        cause = str(trial.get_pickled_error() or "").strip().splitlines()[-1:]
        why = f"its process died more than {MAX_DEATHS} times: {' '.join(cause)}"
        self._end(self._own(trial), "FAILED", why)

    def close(self) -> None:
        """Mark the trials that were interrupted."""
        for key in self._started - self.outcome.ended:
            trial = self._trials[key]
            self._progress.ended(trial, "interrupted")
            self._tracker.trial_ended(trial, "KILLED", self._request.folder(trial))

    def _own(self, trial: Any) -> Trial:
        return self._trials[trial.config["spec"]["key"]]

    def _end(self, trial: Trial, status: str, failure: str | None = None) -> None:
        if failure is None:
            self.outcome.finished.add(trial.key)
        else:
            self.outcome.failures[trial.key] = failure
        self._progress.ended(trial, "done" if failure is None else "failed", failure or "")
        self._tracker.trial_ended(trial, status, self._request.folder(trial))


def finished_results(request: Request) -> dict[str, dict[str, Any]]:
    """The results of the finished trials of the request, by key, whichever launch ran them."""
    results = {trial.key: request.result(trial) for trial in request.trials}
    return {key: result for key, result in results.items() if result is not None}


def final_accuracy(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {key: result["final"]["accuracy/test"] for key, result in results.items()}


def best_settings(request: Request) -> str:
    """The best settings of each method, as an overlay file."""
    results = finished_results(request)
    origin = f"grid {request.grid_name}, profile {request.profile}, {commits(results.values())}"
    return overlay.text(overlay.best(request.trials, final_accuracy(results)), origin)


def write_best(request: Request, path: Path, out: Console) -> None:
    path.write_text(best_settings(request))
    cli.say(out, f"best       {path}, for --overlay")


def show_results(request: Request, out: Console) -> None:
    """The table of all finished trials, and what made it."""
    results = finished_results(request)
    names = sorted({trial.data.dataset for trial in request.trials})
    rounds = sorted({trial.rounds for trial in request.trials})
    out.print(result_table(request.trials, final_accuracy(results)))
    cli.say(
        out,
        f"grid {request.grid_name}, profile {request.profile}, {', '.join(names)}, "
        f"{'/'.join(map(str, rounds))} rounds, {len({t.seed for t in request.trials})} seed(s), "
        f"{len(results)} of {len(request.trials)} trials, commit {commits(results.values())}",
    )
    for caution in cautions(results.values()):
        cli.say(out, caution, "yellow")


def launch_record(
    request: Request, outcome: Outcome
) -> tuple[dict[str, Any], dict[str, float], dict[str, str]]:
    """What the launch itself leaves in MLflow: parameters, metrics, texts."""
    params = {
        "trials": len(request.trials),
        "pending": outcome.num_pending,
        "profile": request.profile,
    }
    metrics = {
        "launch/finished": float(len(outcome.finished)),
        "launch/failed": float(len(outcome.failures)),
        "launch/seconds_outside_rounds_per_trial": outcome.overhead,
        **{f"launch/{name}": value for name, value in outcome.phases.items()},
    }
    recorder = Console(record=True, width=160, file=io.StringIO())
    show_results(request, recorder)
    failures = "\n".join(f"{key}: {why}" for key, why in outcome.failures.items())
    return (
        params,
        metrics,
        {
            "results.txt": recorder.export_text(),
            "failures.txt": failures,
            "best.yaml": best_settings(request),
        },
    )


def conclude(request: Request, outcome: Outcome, tracker: Tracker, out: Console) -> None:
    """Say what is missing and where to look."""
    if request.best is not None:
        write_best(request, request.best, out)
    if request.trace:
        ran = [(t.name, request.folder(t)) for t in request.trials if request.result(t) is not None]
        folder = request.output / "traces"
        path = trace.write(folder, f"{request.grid_name}-{request.name}", ran)
        cli.say(out, f"trace      {path} (for ui.perfetto.dev or chrome://tracing)")
    if outcome.finished:
        if request.timing:
            out.print(timing_table(outcome))
        cli.say(out, f"outside of rounds: {outcome.overhead:.2f} s a trial")
    for trial in request.trials:
        if trial.key in outcome.failures:
            why, log = outcome.failures[trial.key], request.folder(trial) / "trial.log"
            cli.say(out, f"failed {trial.name}: {why}\n  {log}", "red")
    if tracker.complaint is not None:
        cli.say(out, tracker.complaint, "yellow")
    if outcome.stopped:
        cli.say(out, f"{len(outcome.stopped)} trials were stopped early: others did better")
    missing = outcome.num_pending - len(outcome.finished) - len(outcome.stopped)
    if missing:
        cli.say(out, f"{missing} trials are not finished; the same command goes on")
        cli.say(out, f"log        {request.log}")
    cli.say_where(out, request.output, request.output, request.tracking_uri)


def timing_table(outcome: Outcome) -> Table:
    """Where the time of the trials went."""
    table = Table(title="Seconds of all trials")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")

    def add(name: str, seconds: float) -> None:
        table.add_row(name, f"{seconds:.1f}", f"{seconds / outcome.slot_seconds:.1%}")

    for phase, seconds in outcome.phases.items():
        if phase != "seconds/round":
            add(phase.removeprefix("seconds/"), seconds)
    table.add_section()
    for action, seconds in outcome.outside.items():
        add(action, seconds)
    known = outcome.phases["seconds/round"] + sum(outcome.outside.values())
    add("processes start, trials change", outcome.slot_seconds - known)
    return table
