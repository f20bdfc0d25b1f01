"""One trial on its own: in this process, or on shards of a Ray cluster."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedcome_ray import datasets
from fedcome_ray.clients.shard import BLOCK_MEMORY
from fedcome_ray.console import cli_old as cli
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import LocalShards, Shards
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import plan_old as plan
from fedcome_ray.launch.progress import Progress
from fedcome_ray.tracking.store import check_uri
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.trials.provenance import cautions, commits
from fedcome_ray.trials.run import TrialRun, check_fits, exclusive, read_result

EXPERIMENT = "run"  # the MLflow experiment of trials that belong to no grid
REPORT_SECONDS = 0.5


@dataclass(frozen=True)
class SingleRequest:
    """What to run, and where."""

    overrides: Sequence[tuple[str, Any]]
    output: Path
    tracking_uri: str
    data_dir: Path | None = None
    plugins: Sequence[str] = ()
    init_model: Path | None = None
    address: str | None = None
    num_shards: int | None = None
    cpus_per_shard: float | None = None
    gpus_per_shard: float | None = None
    memory_per_shard: int | None = None

    @property
    def is_on_ray(self) -> bool:
        return self.num_shards is not None or self.address is not None


def run_single(request: SingleRequest, out: Console) -> None:
    """Run the trial, or go on with it, and show its result."""
    check_machine(request)
    init_params = read_params(request.init_model) if request.init_model else None
    trial = make_trial(request, init_params)
    check_uri(request.tracking_uri)
    population = datasets.load(trial.data, request.data_dir)
    model = check_fits(trial, population)
    if init_params is not None and init_params.shape != (model.dim,):
        raise UserError(
            f"--init-model: the file has params of shape {list(init_params.shape)}, "
            f"the model `{name_of(trial.model)}` needs [{model.dim}]"
        )
    folder = request.output / "trials" / trial.folder_name
    with ExitStack() as stack:
        stack.enter_context(exclusive(folder))
        if read_result(folder) is not None:
            cli.say(out, "finished earlier, nothing is run")
            tracker = stack.enter_context(closing(tracker_of(request)))
            tracker.mirror(trial, folder)
        else:
            shards = stack.enter_context(shards_of(request, trial, population))
            # MLflow takes seconds to open: in the background, but not beside shards that start.
            tracker = stack.enter_context(closing(tracker_of(request)))
            run = TrialRun(trial, population, shards, folder, init_params)
            follow(run, tracker, population.num_clients)
        tracker.check_open()
    show_result(trial, folder, out)
    if tracker.complaint is not None:
        cli.say(out, tracker.complaint, "yellow")
    cli.say_where(out, folder, request.output, request.tracking_uri)


def check_machine(request: SingleRequest) -> None:
    """Refuse what the trial's place cannot give, before anything is loaded."""
    if request.is_on_ray:
        cli.quiet_ray()
        from fedcome_ray.runtime import cluster_old as cluster  # imports Ray

        if request.address is not None:
            cluster.check_address(request.address)
    elif request.cpus_per_shard is not None or request.gpus_per_shard is not None:
        raise UserError(
            "--cpus-per-shard, --gpus-per-shard: only shards on Ray have them; "
            "give --num-shards too"
        )


def make_trial(request: SingleRequest, init_params: torch.Tensor | None) -> Trial:
    """The trial that the settings describe."""
    if any(name == "init_digest" for name, _ in request.overrides):
        raise UserError("--set init_digest: give the file itself, as --init-model")
    settings = grid.defaults()
    grid.assign(settings, request.overrides)
    if init_params is not None:
        settings["init_digest"] = hashlib.sha256(init_params.numpy().tobytes()).hexdigest()
    return parse_trial(settings)


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
def shards_of(request: SingleRequest, trial: Trial, population: Population) -> Iterator[Shards]:
    """Shards in this process, or on Ray if the request speaks of shards or of a cluster."""
    if not request.is_on_ray:
        yield LocalShards(trial, population, memory=request.memory_per_shard or BLOCK_MEMORY)
        return
    from fedcome_ray.runtime import cluster_old as cluster

    with cluster.connected(request.address, Console(stderr=True)) as resources:
        layout = plan.lay_out(
            1,
            resources.get("CPU", 0),
            resources.get("GPU", 0),
            request.num_shards,
            request.cpus_per_shard,
            request.gpus_per_shard,
            memory_per_shard=request.memory_per_shard,
        )
        cluster.check_feasible(layout.machine)
        pool = cluster.ShardPool(layout.machine)
        shared = cluster.share({"": population})[""]
        yield cluster.RayShards(trial, shared, pool, request.plugins)


def tracker_of(request: SingleRequest) -> Tracker:
    tags = {"grid": EXPERIMENT, "profile": "none", "launch": EXPERIMENT}
    return Tracker(request.tracking_uri, EXPERIMENT, request.output / "artifacts", tags)


def follow(run: TrialRun, tracker: Tracker, num_clients: int) -> None:
    """Run all rounds, shown and tracked; Ctrl-C leaves a checkpoint."""
    trial, status = run.trial, "FAILED"
    try:
        tracker.trial_started(trial)
        cohorts = {trial.key: trial.cohort_size_of(num_clients)}
        progress = Progress(Console(stderr=True), [trial], cohorts)
        with progress, cli.deferred_interrupt() as is_interrupted:
            progress.started(trial)
            progress.resumed(trial, run.num_restored)
            while not (run.is_finished or is_interrupted()):
                lines = run.advance(REPORT_SECONDS)
                progress.advanced(trial, lines)
                tracker.trial_advanced(trial, lines)
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
    for name, value in result["final"].items():
        table.add_row(name, f"{value:.4g}")
    cli.say(out, f"{trial.name} after {trial.rounds} rounds on {trial.data.dataset}")
    out.print(table)
    cli.say(out, f"seed {trial.seed}, key {trial.key}, commit {commits([result])}")
    for caution in cautions([result]):
        cli.say(out, caution, "yellow")
