"""From the arguments of a command to the launch, or the search, of a grid."""

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from rich.console import Console

from fedcome_ray.console import arguments
from fedcome_ray.console.output import Talk, noise_to, tell
from fedcome_ray.experiments import grid, overlay
from fedcome_ray.experiments.settings import parse_axes, parse_overrides
from fedcome_ray.experiments.trial import Trial, identified
from fedcome_ray.launch import document, plan, search, show, start
from fedcome_ray.launch.conclusion import conclude
from fedcome_ray.launch.launch import check_cluster, launch
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Extras, Finished, Request, made_from
from fedcome_ray.plugins import load_plugins

SAMPLES = 16
VALIDATION = 0.1  # the share that is held out to select by, unless another is given


@dataclass(frozen=True)
class Search:
    """What is wanted of a search; with no kind, none is wanted."""

    kind: search.Kind | None
    samples: int
    ranges: search.Space


def trials_of(args: argparse.Namespace, *names: str) -> dict[str, list[Trial]]:
    """The trials of grids, by grid, with the settings of the command line."""
    return _sweep(args, {name: grid.load(name) for name in names}, args.profile)


def request_of(args: argparse.Namespace, console: Console) -> tuple[Request, Search]:
    """The launch of one grid, or the search in it, that the arguments of `tune` ask for."""
    chosen = grid.load(args.grid) if args.grid else grid.DEFAULTS_ALONE
    name = Path(args.grid).stem if args.grid else grid.SWEEP
    (trials,) = _sweep(args, {name: chosen}, args.profile).values()
    if args.search is not None or args.best is not None:
        trials = _held_out(trials, console)
    ranges = search.parse_space(chosen.space)
    if args.search is not None:
        search.check_free(dict(parse_overrides(args.set)), "--set", trials, ranges)
        search.check_free(parse_axes(args.axis), "--axis", trials, ranges)
    request = make_request(args, args.grid, trials)
    return request, Search(args.search, args.samples or SAMPLES, ranges)


def _held_out(trials: list[Trial], console: Console) -> list[Trial]:
    """The trials as settings may be selected by them: never on test examples."""
    if any(trial.data.validation is None for trial in trials):
        tell(
            console,
            f"data.validation is not set: {VALIDATION:g} of every client's training examples are "
            f"held out, and settings are selected on them, not on the test examples",
            "yellow",
        )
    return overlay.held_out(trials, VALIDATION)


def _sweep(
    args: argparse.Namespace, grids: Mapping[str, grid.Grid], profile: str | None
) -> dict[str, list[Trial]]:
    load_plugins(args.plugin)
    overrides = parse_overrides(args.set)
    axes = parse_axes(args.axis, overrides)
    rules = overlay.Overlay(overlay.load(args.overlay) if args.overlay else [])
    found = {
        name: grid.sweep(some, profile, overrides, axes, rules) for name, some in grids.items()
    }
    rules.check_used()
    return found


def make_request(
    args: argparse.Namespace, name_or_path: str | None, trials: list[Trial]
) -> Request:
    """The launch of a grid's trials that the arguments ask for; without a grid, of axes alone."""
    loaded = grid.load(name_or_path) if name_or_path else grid.DEFAULTS_ALONE
    machine = arguments.machine_options(args)
    check_cluster(machine.address)
    locations = arguments.locations(args)
    init_params = _init_params(args)
    return Request(
        grid_name=Path(name_or_path).stem if name_or_path else grid.SWEEP,
        profile=grid.profile_name(loaded, args.profile),
        trials=start.started_from(identified(trials, locations.data_dir), init_params),
        locations=locations,
        machine=machine,
        measure=loaded.measure,
        init_params=init_params,
        extras=Extras(args.timing, args.trace, args.system_metrics, getattr(args, "best", None)),
        made_from=made_from(
            grid.find(name_or_path) if name_or_path else None, args.overlay, args.plugin
        ),
    )


def show_trials(args: argparse.Namespace, out: IO[str]) -> None:
    """Every trial of a grid as a document of YAML, with where its settings come from."""
    load_plugins(args.plugin)
    overrides = parse_overrides(args.set)
    axes = parse_axes(args.axis, overrides)
    rules = overlay.Overlay(overlay.load(args.overlay) if args.overlay else [])
    loaded = grid.load(args.grid) if args.grid else grid.DEFAULTS_ALONE
    found = grid.sweep_traced(loaded, args.profile, overrides, axes, rules)
    rules.check_used()
    trials = start.started_from([trial for trial, _ in found], _init_params(args))
    out.write("---\n".join(map(show.text, trials, (origins for _, origins in found))))


def _init_params(args: argparse.Namespace) -> torch.Tensor | None:
    path = getattr(args, "init_model", None)
    return start.read_params(path) if path else None


def show_plan(request: Request, wanted: Search, talk: Talk, *, all_trials: bool) -> None:
    """Trials, placement and cost; nothing is started."""
    if wanted.kind is not None:  # by candidates at random: others cost as much
        candidates = search.candidates_at_random(request.trials, wanted.ranges, wanted.samples)
        request = dataclasses.replace(request, trials=candidates)
    plan.show_plan(request, talk, all_trials=all_trials)


def run(request: Request, wanted: Search, talk: Talk) -> int:
    """Launch or search; the exit code."""
    with noise_to(request.log) as stderr:
        console, out = talk.progress(stderr), talk.results(stderr)
        if wanted.kind is None:
            outcome = launch(request, console)
        else:
            request, outcome = _search(request, wanted.kind, wanted, console)
        finished = Finished.read(request)
        conclude(finished, outcome, out)
    talk.document(document.of_launch(finished, outcome))
    return outcome.exit_code


def _search(
    request: Request, kind: search.Kind, wanted: Search, console: Console
) -> tuple[Request, Outcome]:
    from fedcome_ray.runtime.connection import connected  # imports Ray

    with connected(request.machine, console):  # one cluster for all its launches
        tried, outcomes = search.search(
            request, wanted.ranges, kind, wanted.samples, lambda some: launch(some, console)
        )
    return tried, Outcome.of_all(outcomes)
