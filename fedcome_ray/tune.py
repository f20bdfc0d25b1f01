"""Run a grid of trials on Ray Tune: `python -m fedcome_ray.tune --grid NAME`."""

import argparse
import sys
from pathlib import Path

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded
from fedcome_ray.console.output import Talk
from fedcome_ray.console.paths import check_file
from fedcome_ray.errors import UserError
from fedcome_ray.importing import large_modules

EXAMPLES = """\
examples:
  python -m fedcome_ray.tune --list
  python -m fedcome_ray.tune --grid partial_participation
  python -m fedcome_ray.tune --grid partial_participation --dry-run
  python -m fedcome_ray.tune --grid partial_participation --set method.name=fedcome --set rounds=20
  python -m fedcome_ray.tune --axis seed=0,1,2 --axis method.name=fedavg,fedcome --set rounds=50
  python -m fedcome_ray.tune --grid search --best best.yaml
  python -m fedcome_ray.tune --grid search --search asha --samples 27 --seeds 0,1,2 --best best.yaml
  python -m fedcome_ray.tune --grid heterogeneity --overlay best.yaml
  python -m fedcome_ray.tune --grid my_grid.yaml --profile paper --address 10.0.0.1:6379
  python -m fedcome_ray.tune --grid scaling --address 10.0.0.1:6379 --output s3://bucket/prefix

The same command skips finished trials and continues unfinished ones.
exit codes: 0 all trials finished, 1 some failed or were interrupted, 2 the request was wrong,
  3 all finished, but MLflow is behind: it failed, and the same command mirrors the results
"""
MAX_SAMPLES = 20_000  # of each method, and no grid has more trials


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command(
        "fedcome_ray.tune",
        "Run a grid of federated-learning trials on Ray Tune, tracked in MLflow.",
        EXAMPLES,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--grid", metavar="NAME", help="a grid of ours, or the path of a .yaml file")
    what.add_argument("--list", action="store_true", help="list the grids and stop")
    parser.add_argument(
        "--profile",
        help="quick (default; embedded data), laptop, mini or paper; your grids may have none",
    )
    parser.add_argument(
        "--search",
        choices=["optuna", "asha"],
        help="try settings from the grid's `space` instead: by Optuna, or by halving, which runs "
        "only the best to the end; compared on held-out examples, by the mean over --seeds",
    )
    parser.add_argument(
        "--samples",
        type=arguments.positive_int,
        metavar="N",
        help="with --search: of each method (16)",
    )
    parser.add_argument(
        "--best",
        type=Path,
        metavar="FILE",
        help="write the best settings on held-out examples, by the mean over --seeds, as overlay",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show trials and cost, start nothing"
    )
    parser.add_argument(
        "--list-trials", action="store_true", help="with --dry-run: every trial, however many"
    )
    parser.add_argument(
        "--show", action="store_true", help="print every trial as YAML, with where it comes from"
    )
    arguments.add_common_arguments(parser)
    arguments.add_start_argument(parser)
    arguments.add_machine_arguments(parser)
    arguments.add_launch_arguments(parser)
    arguments.add_output_arguments(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    if args.list:
        list_grids(Talk.of(args))
        return OK
    check_arguments(args)
    talk = Talk.of(args)
    talk.begin("reading the grid" if args.grid else "reading the axes")
    if args.show or args.dry_run:
        return _look(args, talk)
    with large_modules():
        from fedcome_ray.runtime.connection import begun

    with begun(arguments.machine_options(args)):  # beside what is imported and read
        return guarded(lambda: _launch(args, talk))  # what is wrong is said before Ray has stopped


def _launch(args: argparse.Namespace, talk: Talk) -> int:
    with large_modules():
        from fedcome_ray.launch import grids

    return grids.run(*grids.request_of(args, talk.progress()), talk)


def _look(args: argparse.Namespace, talk: Talk) -> int:
    with large_modules():
        from fedcome_ray.launch import grids

    if args.show:
        grids.show_trials(args, sys.stdout)
        return OK
    request, search = grids.request_of(args, talk.progress())
    grids.show_plan(request, search, talk, all_trials=args.list_trials)
    return OK


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse options that need others; before anything is imported."""
    if not (args.grid or args.axis):
        raise UserError("what to run? --grid NAME or --axis NAME=V1,V2; --list shows the grids")
    if args.list_trials and not args.dry_run:
        raise UserError("--list-trials: only a plan lists trials; give --dry-run too")
    if args.grid is None and args.profile is not None:
        raise UserError("--profile: only a grid has profiles; give --grid too")
    if args.samples is not None and args.search is None:
        raise UserError("--samples: only a search has them; give --search too")
    if args.samples is not None and args.samples > MAX_SAMPLES:
        raise UserError(f"--samples: at most {MAX_SAMPLES:,}, got `{args.samples}`")
    if args.best is not None:
        check_file(args.best, "--best")


def list_grids(talk: Talk) -> None:
    """The grids, each with what it is about."""
    from rich.table import Table

    from fedcome_ray.experiments import grid

    found = {name: grid.load(name).description for name in grid.grid_names()}
    talk.document({"grids": [{"grid": name, "description": text} for name, text in found.items()]})
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in found.items():
        table.add_row(name, text)
    talk.results().print(table)


if __name__ == "__main__":
    sys.exit(main())
