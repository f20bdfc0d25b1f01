"""One trial on its own: in this process, or on shards of a Ray cluster."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fedcome_ray import datasets, metrics
from fedcome_ray.console.exits import BEHIND, OK, deferred_interrupt
from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.console.output import Talk, doing, say, say_where, tell
from fedcome_ray.datasets.population import Population, describe
from fedcome_ray.errors import StorageError, UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import Draft, Setting
from fedcome_ray.experiments.trial import PLUGINS, Trial, check_plugins
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.importing import large_modules
from fedcome_ray.launch import compiling, document, start
from fedcome_ray.launch.launch import check_cluster, writing_to
from fedcome_ray.launch.listener import Tracks
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.repeat import Kept, command
from fedcome_ray.launch.results import stop_cautions
from fedcome_ray.numerics import device
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.tracking.address import check_uri
from fedcome_ray.tracking.tracker import Tracker, Untracked
from fedcome_ray.trials.folder import (
    LOG,
    TRIALS,
    exclusive,
    kept_copy,
    log_error,
    read_own_result,
    read_result,
)
from fedcome_ray.trials.memory import check_memory
from fedcome_ray.trials.origin import command_line, keep_origin
from fedcome_ray.trials.provenance import cautions, commits
from fedcome_ray.trials.run import TrialRun, check_fits

EXPERIMENT = "run"  # the MLflow experiment of trials that belong to no grid
REPORT_SECONDS = 0.5
ONLY = ""  # the key of the one population


@dataclass(frozen=True)
class SingleRequest:
    """What to run, and where."""

    trial: Trial
    locations: Locations
    machine: MachineOptions = field(default_factory=MachineOptions)
    init_params: torch.Tensor | None = None
    is_tracked: bool = True  # in MLflow

    @property
    def folder(self) -> Path:
        return self.locations.output / TRIALS / self.trial.folder_name

    @property
    def is_on_ray(self) -> bool:
        return self.machine.num_shards is not None or self.machine.address is not None


def run_and_show(request: SingleRequest, talk: Talk) -> int:
    """Run the trial, or go on with it, and show its result; the exit code."""
    locations, out = request.locations, talk.results()
    was_finished, complaint = run_single(request, talk.progress())
    uri = locations.tracking_uri
    talk.document(
        document.of_run(request.trial, request.folder, was_finished=was_finished, tracking_uri=uri)
    )
    if was_finished:
        say(out, "finished earlier, nothing is run")
    show_result(request.trial, request.folder, out)
    if complaint is not None:
        say(out, complaint, "yellow")
    say_where(out, request.folder, locations)
    result = read_result(request.folder)
    assert result is not None
    from_file = request.init_params is not None
    say(out, f"repeat     {command(request.folder, result, locations, from_file=from_file)}")
    return OK if complaint is None else BEHIND


def run_single(request: SingleRequest, console: Console) -> tuple[bool, str | None]:
    """Run the trial or go on with it: was it finished already, and what is wrong with MLflow."""
    check_place(request)
    check_plugins(request.trial)
    if request.is_tracked:
        check_uri(request.locations.tracking_uri)
    trial, folder = request.trial, request.folder
    doing(console, f"loading {trial.data.dataset}")
    populations = {ONLY: datasets.load(trial.data, request.locations.data_dir)}
    check_fits(trial, populations[ONLY], request.init_params)
    if request.machine.address is None:  # else its nodes may have more than this one
        check_memory(trial, describe(populations[ONLY]))
    with ExitStack() as stack:
        kept = stack.enter_context(alone(request, console))
        stack.enter_context(errors_logged(folder, kept))
        was_finished = read_own_result(folder) is not None
        if was_finished:
            tracker = tracker_of(request, console)
            stack.enter_context(tracker)
            tracker.mirror(trial, folder)
            tracker.check_open()
        else:
            shards = stack.enter_context(shards_of(request, populations, console))
            # MLflow takes seconds to open: beside the rounds, but not beside shards that start.
            tracker = tracker_of(request, console)
            stack.enter_context(tracker)
            keep_origin(trial, folder, command_line())
            run = TrialRun(trial, shards.population, shards, folder, request.init_params, kept)
            if run.num_restored:
                say(console, f"goes on at round {run.num_restored + 1} of {trial.rounds}")
            if compiling.is_due([trial]):
                doing(console, "compiling, once")
            follow(run, tracker, shards.population.num_clients, console)
    return was_finished, tracker.complaint


@contextmanager
def alone(request: SingleRequest, console: Console) -> Iterator[WorkingCopy | None]:
    """Be the only process in the trial's folder, or in the whole storage that keeps it.

    In a storage, the folder is brought here.
    """
    if request.locations.storage is None:
        with exclusive(request.folder):
            yield None
        return
    output = exclusive(request.locations.output, patience=0)
    with output, writing_to(request.locations, console) as lease:
        assert lease is not None
        kept = kept_copy(request.folder, lease)
        kept.pull()
        yield kept


@contextmanager
def errors_logged(folder: Path, kept: WorkingCopy | None = None) -> Iterator[None]:
    """Keep what is known of an error in the trial's log, and say where that is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        log_error(folder, error)
        if kept is not None:
            with suppress(StorageError):
                kept.push()
        error.add_note(str(folder / LOG))
        raise


def check_place(request: SingleRequest) -> None:
    """Refuse what the trial's place cannot give, before anything is loaded."""
    machine = request.machine
    check_cluster(machine.address)
    if not request.is_on_ray:
        device.wished(machine.device)
    wishes = (machine.cpus_per_shard, machine.gpus_per_shard)
    if not request.is_on_ray and (wishes != (None, None) or machine.private):
        raise UserError(
            "--cpus-per-shard, --gpus-per-shard, --num-cpus, --num-gpus, --object-store-memory: "
            "only a trial on Ray has them; give --num-shards too"
        )


def draft_of(
    overrides: Sequence[Setting], init_params: torch.Tensor | None, kept: Kept | None = None
) -> Draft:
    """The settings of a trial: the defaults, or those of one that is repeated, and the wishes."""
    if any(name == "init_digest" for name, _ in overrides):
        raise UserError("--set init_digest: give the file itself, as --init-model")
    draft = (
        Draft(grid.defaults()) if kept is None else Draft(copy.deepcopy(kept.settings), "--from")
    )
    draft.assign(overrides, "--set")
    for digest, setting in PLUGINS.items():
        if kept is not None and draft.settings.get(setting) != kept.settings.get(setting):
            draft.assign([(digest, None)], "default")  # that of what is taken instead
    if init_params is not None:
        _start_from(draft, start.digest(init_params))
    return draft


def _start_from(draft: Draft, digest: str) -> None:
    before = draft.settings.get("init_digest")
    if before not in {None, digest}:
        raise UserError("--init-model: these are not the params that the trial started from")
    draft.assign([("init_digest", digest)], "--init-model")


@contextmanager
def shards_of(
    request: SingleRequest, populations: dict[str, Population], console: Console
) -> Iterator[Shards]:
    """Shards in this process, or on Ray if the request speaks of shards or of a cluster."""
    trial, machine = request.trial, request.machine
    if not request.is_on_ray:
        chosen = device.wished(machine.device)
        if machine.device == "auto" and torch.backends.mps.is_available():
            say(console, f"no GPU is used. {device.no_gpu_because()}", "yellow")
        population, memory = populations[ONLY], machine.memory_per_shard
        yield LocalShards(trial, population, device=chosen, memory=memory)
        return
    with large_modules():
        from fedcome_ray.runtime.connection import SHARDS, connected
        from fedcome_ray.runtime.feasibility import lay_out
        from fedcome_ray.runtime.pool import ShardPool
        from fedcome_ray.runtime.populations import share, with_own_files
        from fedcome_ray.runtime.shards import RayShards
        from fedcome_ray.runtime.waiting import wait_for_shards

    with connected(machine, console, SHARDS):
        (place, _), unused_gpus = lay_out(machine, 1)
        if unused_gpus is not None:
            say(console, unused_gpus, "yellow")
        # Ray gave this process no GPU.
        pool = ShardPool(replace(place, is_joint=not place.gpus_per_shard))
        wait_for_shards(pool.actors, pool.place.bundles[-1], lambda line: say(console, line))
        shared = share(populations)
        if machine.address is not None:
            shared = with_own_files(shared, {ONLY: trial.data}, request.locations.data_dir)
        yield RayShards(trial, shared[ONLY], pool, request.locations.plugins)


def tracker_of(request: SingleRequest, console: Console) -> Tracker | Untracked:
    tags = {
        "grid": EXPERIMENT,
        "profile": grid.NO_PROFILE,
        "launch": EXPERIMENT,
        "command": command_line(),
    }
    locations = request.locations
    if not request.is_tracked:
        return Untracked()
    artifacts, say = locations.output / "artifacts", partial(doing, console)
    uri, log_every = locations.tracking_uri, locations.log_every
    return Tracker(uri, EXPERIMENT, artifacts, tags, say, log_every=log_every)


def follow(run: TrialRun, tracker: Tracks, num_clients: int, console: Console) -> None:
    """Run all rounds, shown and tracked; Ctrl-C leaves a checkpoint."""
    trial, status = run.trial, "FAILED"
    try:
        tracker.trial_started(trial)
        cohorts = {trial.key: trial.cohort_size_of(num_clients)}
        progress = Progress(console, [trial], cohorts)
        with progress, deferred_interrupt(progress.stopping) as is_interrupted:
            progress.started(trial)
            progress.resumed(trial, run.num_restored)
            while not (run.is_finished or is_interrupted()):
                tracker.check_usable()
                rounds = run.advance(REPORT_SECONDS)
                for incident in run.take_incidents():
                    progress.survived(trial, incident)
                progress.advanced(trial, rounds)
                tracker.trial_advanced(trial, rounds)
            if is_interrupted():
                status = "KILLED"
                run.checkpoint()
                raise KeyboardInterrupt
            run.finish()
            progress.ended(trial, "done")
        status = "FINISHED"
    finally:
        tracker.trial_ended(trial, status, run.folder)


def show_result(trial: Trial, folder: Path, out: Console) -> None:
    """The last round of a finished trial, and what produced it."""
    result = read_result(folder)
    assert result is not None
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name in sorted(result.final, key=metrics.importance):
        table.add_row(name, f"{result.final[name]:.4g}")
    is_early = result.rounds < trial.rounds
    stopped = f"stopped after {result.rounds} of" if is_early else "after"
    say(out, f"{trial.name}\n{stopped} {trial.rounds} rounds on {trial.data.dataset}")
    out.print(table)
    say(out, f"seed {trial.seed}, key {trial.key}, commit {commits([result.provenance])}")
    for caution in [*stop_cautions([trial]), *cautions([result.computed_with])]:
        tell(out, caution, "yellow")
