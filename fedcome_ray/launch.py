"""A launch: the pending trials of a grid on Ray Tune, watched, tracked and summed up."""

import io
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
from rich.console import Console
from rich.table import Table

from fedcome_ray import cli, cluster, datasets, plan
from fedcome_ray.config import Trial
from fedcome_ray.population import Population
from fedcome_ray.progress import Progress
from fedcome_ray.provenance import provenance
from fedcome_ray.summary import result_table
from fedcome_ray.tracking import Tracker, check_uri
from fedcome_ray.trainable import TrialActor
from fedcome_ray.trial import check_fits, exclusive, read_result

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
    max_concurrent: int | None = None
    timing: bool = False

    def folder(self, trial: Trial) -> Path:
        return self.output / "trials" / trial.folder_name

    def result(self, trial: Trial) -> dict[str, Any] | None:
        return read_result(self.folder(trial))

    def layout(self, num_trials: int, cpus: float, gpus: float) -> plan.Layout:
        return plan.lay_out(
            num_trials,
            cpus,
            gpus,
            self.num_shards,
            self.cpus_per_shard,
            self.gpus_per_shard,
            self.max_concurrent,
        )


@dataclass
class Outcome:
    """What happened to the trials that a launch had to run."""

    finished: set[str] = field(default_factory=set)  # trial keys
    failures: dict[str, str] = field(default_factory=dict)  # trial key -> why
    phases: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # seconds of all rounds by phase
    slot_seconds: float = 0.0  # wall time of the grid times the trials that ran at once

    @property
    def overhead(self) -> float:
        """Seconds that a trial spent outside of its rounds, on average."""
        return (self.slot_seconds - self.phases["seconds/round"]) / max(1, len(self.finished))


def launch(request: Request, out: Console) -> int:
    """Run what is not finished, show what there is; the exit code."""
    check_uri(request.tracking_uri)
    if request.address is not None:
        cluster.check_address(request.address)
    populations = load_populations(request)
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    log = request.output / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)

    # One launch at a time: its driver is the only writer of the default store, which is SQLite.
    with exclusive(request.output, patience=0), cli.noise_to(log) as stderr:
        pending = [trial for trial in request.trials if request.result(trial) is None]
        console = Console(file=stderr)
        tags = {"grid": request.grid_name, "profile": request.profile, "launch": name}
        artifacts = request.output / "artifacts"
        tracker = Tracker(request.tracking_uri, request.grid_name, artifacts, tags)
        outcome = Outcome()
        try:
            for trial in request.trials:
                if trial not in pending:
                    tracker.mirror(trial, request.folder(trial))
            if pending:
                console.print("starting Ray ...")
                with cluster.connected(request.address):
                    tracker.check_open()
                    outcome = run_trials(request, pending, populations, tracker, console)
            tracker.check_open()
            tracker.launch_ended(*launch_record(request, pending, outcome))
        finally:
            tracker.close()
    show_results(request, out)
    return conclude(request, pending, outcome, tracker, out, log)


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
) -> Outcome:
    """Hand the trials to Tune and listen."""
    resources = ray.cluster_resources()
    layout = request.layout(len(trials), resources.get("CPU", 0), resources.get("GPU", 0))
    cluster.check_feasible(layout.machine)
    console.print(f"{len(trials)} trials, {plan.words(layout)}", highlight=False)
    trainable = tune.with_parameters(
        TrialActor,
        populations=cluster.share(populations),
        machine=layout.machine,
        trials_folder=request.output / "trials",
        plugins=list(request.plugins),
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
            listener = Listener(request, trials, tracker, progress)
            tune.Tuner(
                tune.with_resources(
                    trainable, tune.PlacementGroupFactory(layout.machine.bundles, strategy="PACK")
                ),
                param_space={"spec": tune.grid_search(specs)},
                tune_config=tune.TuneConfig(
                    max_concurrent_trials=layout.concurrent, reuse_actors=True
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
    listener.outcome.slot_seconds = (time.monotonic() - start) * layout.concurrent
    listener.close()
    return listener.outcome


class Listener(tune.Callback):
    """Passes what Tune reports on to the display and to the tracker."""

    def __init__(
        self, request: Request, trials: Sequence[Trial], tracker: Tracker, progress: Progress
    ) -> None:
        self.outcome = Outcome()
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
        if result["failure"] is not None:
            self._end(own, "FAILED", result["failure"])
        elif result["done"]:
            self._end(own, "FINISHED")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        cause = str(trial.get_pickled_error() or "").strip().splitlines()[-1:]
        why = f"its process died more than {MAX_DEATHS} times: {' '.join(cause)}"
        self._end(self._own(trial), "FAILED", why)

    def close(self) -> None:
        """Mark the trials that were interrupted."""
        for key in self._started - self.outcome.finished - set(self.outcome.failures):
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


def show_results(request: Request, out: Console) -> None:
    """The accuracy of all finished trials of the request, whichever launch ran them."""
    results = {trial.key: request.result(trial) for trial in request.trials}
    accuracy = {key: r["final"]["accuracy/test"] for key, r in results.items() if r is not None}
    names = sorted({trial.data.dataset for trial in request.trials})
    rounds = sorted({trial.rounds for trial in request.trials})
    cli.say(out, "Test accuracy of the last round, %")  # as a title it would be cut by the table
    out.print(result_table(request.trials, accuracy))
    cli.say(
        out,
        f"grid {request.grid_name}, profile {request.profile}, {', '.join(names)}, "
        f"{'/'.join(map(str, rounds))} rounds, {len({t.seed for t in request.trials})} seed(s), "
        f"{len(accuracy)} of {len(request.trials)} trials, commit {provenance()['commit'][:10]}",
    )


def launch_record(
    request: Request, pending: Sequence[Trial], outcome: Outcome
) -> tuple[dict[str, Any], dict[str, float], dict[str, str]]:
    """What the launch itself leaves in MLflow: parameters, metrics, texts."""
    params = {"trials": len(request.trials), "pending": len(pending), "profile": request.profile}
    metrics = {
        "launch/finished": float(len(outcome.finished)),
        "launch/failed": float(len(outcome.failures)),
        "launch/seconds_outside_rounds_per_trial": outcome.overhead,
        **{f"launch/{name}": value for name, value in outcome.phases.items()},
    }
    recorder = Console(record=True, width=160, file=io.StringIO())
    show_results(request, recorder)
    failures = "\n".join(f"{key}: {why}" for key, why in outcome.failures.items())
    return params, metrics, {"results.txt": recorder.export_text(), "failures.txt": failures}


def conclude(
    request: Request,
    pending: Sequence[Trial],
    outcome: Outcome,
    tracker: Tracker,
    out: Console,
    log: Path,
) -> int:
    """Say what is missing and where to look; the exit code."""
    if request.timing and outcome.finished:
        out.print(timing_table(outcome))
    if outcome.finished:
        cli.say(out, f"outside of rounds: {outcome.overhead:.2f} s a trial")
    for trial in pending:
        if trial.key in outcome.failures:
            why = outcome.failures[trial.key]
            cli.say(out, f"failed {trial.name}: {why}\n  {request.folder(trial)}/trial.log", "red")
    if tracker.problem is not None:
        lost = "nothing is lost, the same command mirrors the results again"
        cli.say(out, f"MLflow: {tracker.problem}; {lost}", "yellow")
    missing = len(pending) - len(outcome.finished)
    if missing:
        cli.say(out, f"{missing} trials are not finished; the same command goes on. Log: {log}")
    cli.say_where(out, request.output, request.tracking_uri)
    return cli.FAILED if missing else cli.OK


def timing_table(outcome: Outcome) -> Table:
    """Where the time of the trials went."""
    table = Table(title="Seconds of all trials")
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    rows = dict(outcome.phases)
    rounds = rows.pop("seconds/round")
    rows["outside of rounds"] = outcome.slot_seconds - rounds
    for name, seconds in rows.items():
        share = f"{seconds / outcome.slot_seconds:.1%}"
        table.add_row(name.removeprefix("seconds/"), f"{seconds:.1f}", share)
    return table
