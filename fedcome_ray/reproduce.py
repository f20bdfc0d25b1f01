"""Run all grids and write the report: `python -m fedcome_ray.reproduce`."""

import argparse
import sys
from typing import TYPE_CHECKING

from fedcome_ray.console import cli_old as cli

if TYPE_CHECKING:
    from rich.console import Console

    from fedcome_ray.launch.launch_old import Outcome, Request

EXAMPLES = """\
examples:
  python -m fedcome_ray.reproduce                      # embedded data, some minutes
  python -m fedcome_ray.reproduce --dry-run --profile paper --cpus 64
  python -m fedcome_ray.reproduce --profile mini --only full_participation --only fairness
  python -m fedcome_ray.reproduce --profile paper --address 10.0.0.1:6379 --output /shared/results

The same command skips finished trials and continues unfinished ones.
exit codes: 0 everything finished, 1 some trials failed or were interrupted, 2 the request was wrong
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return cli.guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedcome_ray.reproduce",
        description="Run the grids of all tables and figures, then write the report.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--profile", default="quick", help="quick (default; embedded data), mini or paper"
    )
    parser.add_argument(
        "--only", action="append", metavar="GRID", help="this grid alone; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the cost, start nothing")
    parser.add_argument(
        "--cpus", type=cli.positive_int, metavar="N", help="with --dry-run: of the cluster to be"
    )
    cli.add_common_arguments(parser)
    cli.add_machine_arguments(parser)
    cli.add_launch_arguments(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fedcome_ray import datasets, methods
    from fedcome_ray.experiments import grid
    from fedcome_ray.tune import make_request, overlay_of

    methods.load_plugins(args.plugin)
    overrides = grid.parse_overrides(args.set)
    grids = {name: grid.load(name) for name in args.only or grid.grid_names()}
    overlay = overlay_of(args)
    trials = {
        name: grid.expand(chosen, args.profile, overrides, overlay)
        for name, chosen in grids.items()
    }
    overlay.check_used()
    out = Console(file=sys.stdout)  # not what noise is sent away from
    if args.dry_run:
        from fedcome_ray.launch import plan_old as plan

        out.print(plan.cost_table(trials, args.cpus))
        return cli.OK

    output, data_dir = cli.check_output(args.output), cli.check_data_dir(args.data_dir)
    for some in trials.values():  # all missing data is named before the first grid starts
        for config in {trial.data for trial in some}:
            datasets.check_available(config, data_dir)
    requests = [make_request(args, name, some, output, data_dir) for name, some in trials.items()]
    outcomes = run_grids(requests, args.address, out)
    code = max(outcome.exit_code for outcome in outcomes)
    if outcomes[-1].is_interrupted:
        return code
    return max(code, write_report(requests[0], out))


def run_grids(requests: "list[Request]", address: str | None, out: "Console") -> "list[Outcome]":
    """One grid after the other on one cluster; an interruption ends them all."""
    from rich.console import Console

    from fedcome_ray.launch.launch_old import launch
    from fedcome_ray.runtime import cluster_old as cluster

    outcomes = []
    with cli.noise_to(requests[0].log) as stderr:
        console = Console(file=stderr)
        with cluster.connected(address, console):
            for request in requests:
                out.rule(request.grid_name)
                outcomes.append(launch(request, out, console))
                if outcomes[-1].is_interrupted:
                    break
    return outcomes


def write_report(request: "Request", out: "Console") -> int:
    from fedcome_ray import report

    out.rule("report")
    folder = str(request.output / "analysis")
    return report.main(
        ["--grid", "all", "--tracking-uri", request.tracking_uri, "--output", folder]
    )


if __name__ == "__main__":
    sys.exit(main())
