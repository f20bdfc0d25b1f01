"""From the arguments of a command to the launch, or the search, of a grid."""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedcome_ray import methods
from fedcome_ray.console import arguments
from fedcome_ray.console.output import noise_to
from fedcome_ray.experiments import grid, overlay
from fedcome_ray.experiments.settings import parse_overrides
from fedcome_ray.experiments.trial import Trial, identified
from fedcome_ray.launch import cost, search
from fedcome_ray.launch.launch import check_cluster, launch
from fedcome_ray.launch.request import Extras, Finished, Request
from fedcome_ray.launch.results import show_results, write_best
from fedcome_ray.numerics import device
from fedcome_ray.runtime import placement

SAMPLES = 16


@dataclass(frozen=True)
class Search:
    """What is wanted of a search; with no kind, none is wanted."""

    kind: search.Kind | None
    samples: int
    ranges: search.Space


def trials_of(args: argparse.Namespace, *names: str) -> dict[str, list[Trial]]:
    """The trials of grids, by grid, with the settings of the command line."""
    methods.load_plugins(args.plugin)
    overrides = parse_overrides(args.set)
    rules = overlay.Overlay(overlay.load(args.overlay) if args.overlay else [])
    found = {name: grid.expand(grid.load(name), args.profile, overrides, rules) for name in names}
    rules.check_used()
    return found


def request_of(args: argparse.Namespace) -> tuple[Request, Search]:
    """The launch of one grid, or the search in it, that the arguments of `tune` ask for."""
    (trials,) = trials_of(args, args.grid).values()
    ranges = search.parse_space(grid.load(args.grid).space)
    if args.search is not None:
        search.check_free(parse_overrides(args.set), trials, ranges)
    request = make_request(args, Path(args.grid).stem, trials)
    return request, Search(args.search, args.samples or SAMPLES, ranges)


def make_request(args: argparse.Namespace, grid_name: str, trials: list[Trial]) -> Request:
    """The launch of these trials that the arguments ask for."""
    machine = arguments.machine_options(args)
    check_cluster(machine.address)
    locations = arguments.locations(args)
    return Request(
        grid_name=grid_name,
        profile=args.profile,
        trials=identified(trials, locations.data_dir),
        locations=locations,
        machine=machine,
        extras=Extras(args.timing, args.trace, args.system_metrics, getattr(args, "best", None)),
    )


def show_plan(request: Request, wanted: Search, out: Console) -> None:
    """Trials, placement and cost; nothing is started."""
    if wanted.kind is not None:  # by candidates at random: others cost as much
        candidates = search.candidates_at_random(request.trials, wanted.ranges, wanted.samples)
        request = dataclasses.replace(request, trials=candidates)
    finished = Finished.read(request)
    out.print(cost.plan_table(request.trials, set(finished.results)))
    pending = [trial for trial in request.trials if trial.key not in finished.results]
    here = placement.place(request.machine, max(1, len(pending)), [placement.this_machine()])
    total = cost.estimate(pending, on=device.pick(here.trial.gpus_per_shard))
    out.print(f"{placement.words(here)}\n{cost.cost_words(total, here)}")


def run(request: Request, wanted: Search, out: Console) -> int:
    """Launch or search; the exit code."""
    with noise_to(request.log) as stderr:
        console = Console(file=stderr)
        if wanted.kind is None:
            return launch(request, out, console).exit_code
        return _search(request, wanted.kind, wanted, out, console)


def _search(
    request: Request, kind: search.Kind, wanted: Search, out: Console, console: Console
) -> int:
    from fedcome_ray.runtime.connection import connected  # imports Ray

    with connected(request.machine.address, console):  # one cluster for all its launches
        tried, outcomes = search.search(
            request, wanted.ranges, kind, wanted.samples, lambda some: launch(some, out, console)
        )
    finished = Finished.read(tried)
    show_results(finished, out)
    if request.extras.best is not None:
        write_best(finished, request.extras.best, out)
    return max(outcome.exit_code for outcome in outcomes)
