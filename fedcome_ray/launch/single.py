"""One trial on its own: in this process, or on shards of a Ray cluster."""

import copy
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedcome_ray import datasets, metrics
from fedcome_ray.clients.shard import BLOCK_MEMORY
from fedcome_ray.console.exits import deferred_interrupt
from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.console.output import Talk, doing, say, say_where, tell
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import Draft, Setting
from fedcome_ray.experiments.trial import Trial, check_plugin
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import compiling, document
from fedcome_ray.launch.launch import check_cluster
from fedcome_ray.launch.listener import Tracks
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.repeat import Kept, command
from fedcome_ray.runtime.placement import place
from fedcome_ray.tracking.store import check_uri
from fedcome_ray.tracking.tracker import Tracker, Untracked
from fedcome_ray.trials.folder import LOG, exclusive, log_error, read_own_result, read_result
from fedcome_ray.trials.origin import command_line, keep_origin
from fedcome_ray.trials.provenance import cautions, commits
from fedcome_ray.trials.run import TrialRun, check_fits

EXPERIMENT = "run"  # the MLflow experiment of trials that belong to no grid
REPORT_SECONDS = 0.5


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
        return self.locations.output / "trials" / self.trial.folder_name

    @property
    def is_on_ray(self) -> bool:
        return self.machine.num_shards is not None or self.machine.address is not None


def run_and_show(request: SingleRequest, talk: Talk) -> None:
    """Run the trial, or go on with it, and show its result."""
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
    say_where(out, request.folder, locations.output, locations.tracking_uri)
    result = read_result(request.folder)
    assert result is not None
    from_file = request.init_params is not None
    say(out, f"repeat     {command(request.folder, result, locations, from_file=from_file)}")


def run_single(request: SingleRequest, console: Console) -> tuple[bool, str | None]:
    """Run the trial or go on with it: was it finished already, and what is wrong with MLflow."""
    check_place(request)
    check_plugin(request.trial)
    if request.is_tracked:
        check_uri(request.locations.tracking_uri)
    trial, folder = request.trial, request.folder
    doing(console, f"loading {trial.data.dataset}")
    population = datasets.load(trial.data, request.locations.data_dir)
    check_params(request, population)
    with ExitStack() as stack:
        stack.enter_context(exclusive(folder))
        stack.enter_context(errors_logged(folder))
        was_finished = read_own_result(folder) is not None
        if was_finished:
            tracker = stack.enter_context(closing(tracker_of(request)))
            tracker.mirror(trial, folder)
        else:
            shards = stack.enter_context(shards_of(request, population, console))
            # MLflow takes seconds to open: in the background, but not beside shards that start.
            tracker = stack.enter_context(closing(tracker_of(request)))
            keep_origin(trial, folder, command_line())
            run = TrialRun(trial, population, shards, folder, request.init_params)
            if run.num_restored:
                say(console, f"goes on at round {run.num_restored + 1} of {trial.rounds}")
            if compiling.is_due([trial]):
                doing(console, "compiling, once")
            follow(run, tracker, population.num_clients, console)
        tracker.check_open()
    return was_finished, tracker.complaint


@contextmanager
def errors_logged(folder: Path) -> Iterator[None]:
    """Keep what is known of an error in the trial's log, and say where that is."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        log_error(folder, error)
        error.add_note(str(folder / LOG))
        raise


def check_place(request: SingleRequest) -> None:
    """Refuse what the trial's place cannot give, before anything is loaded."""
    machine = request.machine
    check_cluster(machine.address)
    wishes = (machine.cpus_per_shard, machine.gpus_per_shard)
    if not request.is_on_ray and wishes != (None, None):
        raise UserError(
            "--cpus-per-shard, --gpus-per-shard: only shards on Ray have them; "
            "give --num-shards too"
        )


def check_params(request: SingleRequest, population: Population) -> None:
    """Refuse a model, a cohort or params that do not fit."""
    model = check_fits(request.trial, population)
    params = request.init_params
    if (params is None) != (request.trial.init_digest is None):
        raise UserError("init_digest: a trial that starts from a file is run with --init-model")
    if params is not None and params.shape != (model.dim,):
        raise UserError(
            f"--init-model: the file has params of shape {list(params.shape)}, "
            f"the model `{name_of(request.trial.model)}` needs [{model.dim}]"
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
    if kept is not None and draft.settings["method"] != kept.settings["method"]:
        draft.assign([("plugin", None)], "default")  # that of the method which is taken instead
    if init_params is not None:
        _start_from(draft, hashlib.sha256(init_params.numpy().tobytes()).hexdigest())
    return draft


def _start_from(draft: Draft, digest: str) -> None:
    before = draft.settings["init_digest"]
    if before not in {None, digest}:
        raise UserError("--init-model: these are not the params that the trial started from")
    draft.assign([("init_digest", digest)], "--init-model")


def read_params(path: Path) -> torch.Tensor:
    """The params in a model file of ours."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"--init-model: cannot read `{path}`: {error}") from None
    if "params" not in tensors:
        raise UserError(f"--init-model: `{path}` has no tensor `params`; it has {list(tensors)}")
    params = tensors["params"]
    if not params.is_floating_point() or not params.isfinite().all():
        raise UserError(f"--init-model: the params of `{path}` must be finite real numbers")
    return params.float()


@contextmanager
def shards_of(request: SingleRequest, population: Population, console: Console) -> Iterator[Shards]:
    """Shards in this process, or on Ray if the request speaks of shards or of a cluster."""
    trial, machine = request.trial, request.machine
    if not request.is_on_ray:
        yield LocalShards(trial, population, memory=machine.memory_per_shard or BLOCK_MEMORY)
        return
    from fedcome_ray.runtime.connection import connected
    from fedcome_ray.runtime.feasibility import check_feasible
    from fedcome_ray.runtime.populations import share
    from fedcome_ray.runtime.shards import RayShards, ShardPool

    with connected(machine.address, console) as resources:
        chosen = place(machine, 1, resources.get("CPU", 0), resources.get("GPU", 0)).trial
        check_feasible(chosen)
        pool = ShardPool(chosen)
        shared = share({"": population})[""]
        yield RayShards(trial, shared, pool, request.locations.plugins)


def tracker_of(request: SingleRequest) -> Tracker | Untracked:
    tags = {
        "grid": EXPERIMENT,
        "profile": grid.NO_PROFILE,
        "launch": EXPERIMENT,
        "command": command_line(),
    }
    locations = request.locations
    if not request.is_tracked:
        return Untracked()
    return Tracker(locations.tracking_uri, EXPERIMENT, locations.output / "artifacts", tags)


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
                rounds = run.advance(REPORT_SECONDS)
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
    say(out, f"{trial.name}\nafter {trial.rounds} rounds on {trial.data.dataset}")
    out.print(table)
    say(out, f"seed {trial.seed}, key {trial.key}, commit {commits([result.provenance])}")
    for caution in cautions([result.computed_with]):
        tell(out, caution, "yellow")
