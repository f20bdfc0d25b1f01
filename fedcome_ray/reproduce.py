"""Run all grids and write the report: `python -m fedcome_ray.reproduce`."""

import argparse
import sys
from typing import TYPE_CHECKING

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded
from fedcome_ray.console.output import noise_to

if TYPE_CHECKING:
    from rich.console import Console

    from fedcome_ray.launch.outcome import Outcome
    from fedcome_ray.launch.request import Request

EXAMPLES = """\
examples:
  python -m fedcome_ray.reproduce                      # embedded data, some minutes
  python -m fedcome_ray.reproduce --profile laptop     # MNIST, five seeds, under two hours
  python -m fedcome_ray.reproduce --dry-run --profile paper --cpus 64
  python -m fedcome_ray.reproduce --profile mini --only full_participation --only fairness
  python -m fedcome_ray.reproduce --profile paper --address 10.0.0.1:6379 --output /shared/results

The same command skips finished trials and continues unfinished ones.
exit codes: 0 everything finished, 1 some trials failed or were interrupted, 2 the request was wrong
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command(
        "fedcome_ray.reproduce",
        "Run the grids of all tables and figures, then write the report.",
        EXAMPLES,
    )
    parser.add_argument(
        "--profile",
        default="quick",
        help="quick (default; embedded data), laptop (MNIST), mini or paper",
    )
    parser.add_argument(
        "--only", action="append", metavar="GRID", help="this grid alone; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the cost, start nothing")
    parser.add_argument(
        "--cpus",
        type=arguments.positive_int,
        metavar="N",
        help="with --dry-run: of the cluster to be",
    )
    arguments.add_common_arguments(parser)
    arguments.add_machine_arguments(parser)
    arguments.add_launch_arguments(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fedcome_ray import datasets
    from fedcome_ray.experiments import grid
    from fedcome_ray.launch import cost, grids

    trials = grids.trials_of(args, *(args.only or grid.grid_names()))
    out = Console(file=sys.stdout)  # bound now: while trials run, sys.stdout is redirected
    if args.dry_run:
        out.print(cost.cost_table(trials, args.cpus))
        return OK
    requests = [grids.make_request(args, name, some) for name, some in trials.items()]
    for request in requests:  # all missing data is named before the first grid starts
        for config in {trial.data for trial in request.trials}:
            datasets.check_available(config, request.locations.data_dir)
    outcomes = run_grids(requests, out)
    code = max(outcome.exit_code for outcome in outcomes)
    if outcomes[-1].is_interrupted:
        return code
    return max(code, write_report(requests[0], out))


def run_grids(requests: "list[Request]", out: "Console") -> "list[Outcome]":
    """One grid after the other on one cluster; an interruption ends them all."""
    from rich.console import Console

    from fedcome_ray.launch.launch import launch
    from fedcome_ray.runtime.connection import connected

    outcomes = []
    with noise_to(requests[0].log) as stderr:
        console = Console(file=stderr)
        with connected(requests[0].machine.address, console):
            for request in requests:
                out.rule(request.grid_name)
                outcomes.append(launch(request, out, console))
                if outcomes[-1].is_interrupted:
                    break
    return outcomes


def write_report(request: "Request", out: "Console") -> int:
    from fedcome_ray import report

    out.rule("report")
    locations = request.locations
    where = ["--output", str(locations.output), "--tracking-uri", locations.tracking_uri]
    wanted = ["--grid", "all", *where]
    return report.main(wanted)


if __name__ == "__main__":
    sys.exit(main())
