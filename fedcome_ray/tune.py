"""Run a grid of trials on Ray Tune: `python -m fedcome_ray.tune --grid NAME`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedcome_ray.console import cli_old as cli
from fedcome_ray.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from fedcome_ray.experiments.overlay import Overlay
    from fedcome_ray.experiments.trial import Trial
    from fedcome_ray.launch.launch_old import Request

EXAMPLES = """\
examples:
  python -m fedcome_ray.tune --list
  python -m fedcome_ray.tune --grid partial_participation
  python -m fedcome_ray.tune --grid partial_participation --dry-run
  python -m fedcome_ray.tune --grid partial_participation --set method.name=fedcome --set rounds=20
  python -m fedcome_ray.tune --grid search --best best.yaml
  python -m fedcome_ray.tune --grid search --search asha --samples 27 --best best.yaml
  python -m fedcome_ray.tune --grid heterogeneity --overlay best.yaml
  python -m fedcome_ray.tune --grid my_grid.yaml --profile paper --address 10.0.0.1:6379

The same command skips finished trials and continues unfinished ones.
exit codes: 0 all trials finished, 1 some failed or were interrupted, 2 the request was wrong
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return cli.guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedcome_ray.tune",
        description="Run a grid of federated-learning trials on Ray Tune, tracked in MLflow.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--grid", metavar="NAME", help="a grid of ours, or the path of a .yaml file")
    what.add_argument("--list", action="store_true", help="list the grids and stop")
    parser.add_argument(
        "--profile", default="quick", help="quick (default; embedded data), mini or paper"
    )
    parser.add_argument(
        "--search",
        choices=["optuna", "asha"],
        help="try settings from the grid's `space` instead: by Optuna, or with early stopping",
    )
    parser.add_argument(
        "--samples", type=cli.positive_int, default=16, metavar="N", help="of each method (16)"
    )
    parser.add_argument(
        "--best", type=Path, metavar="FILE", help="write the best settings found as an overlay"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show trials and cost, start nothing"
    )
    cli.add_common_arguments(parser)
    cli.add_machine_arguments(parser)
    cli.add_launch_arguments(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fedcome_ray.experiments import grid

    out = Console(file=sys.stdout)  # not what noise is sent away from
    if args.list:
        for name in grid.grid_names():
            out.print(f"[bold]{name:24}[/bold] {grid.load(name).description}", highlight=False)
        return cli.OK

    from fedcome_ray import methods
    from fedcome_ray.launch import search

    methods.load_plugins(args.plugin)
    chosen = grid.load(args.grid)
    overrides = grid.parse_overrides(args.set)
    overlay = overlay_of(args)
    trials = grid.expand(chosen, args.profile, overrides, overlay)
    overlay.check_used()
    data_dir = cli.check_data_dir(args.data_dir)
    output = cli.check_output(args.output)

    if args.best is not None and not args.best.absolute().parent.is_dir():
        raise UserError(f"--best: there is no folder `{args.best.parent}`")

    space = search.parse_space(chosen.space)
    request = make_request(args, Path(args.grid).stem, trials, output, data_dir)
    if args.dry_run:
        if args.search is not None:  # by candidates at random: others cost as much
            candidates = search.candidates_at_random(trials, space, args.samples)
            request = dataclasses.replace(request, trials=candidates)
        return dry_run(request, out)
    from fedcome_ray.launch.launch_old import launch, show_results, write_best
    from fedcome_ray.runtime import cluster_old as cluster

    with cli.noise_to(request.log) as stderr:
        console = Console(file=stderr)
        if args.search is None:
            return launch(request, out, console).exit_code
        with cluster.connected(request.address, console):  # one cluster for all its launches
            tried, outcomes = search.search(
                request, space, args.search, args.samples, lambda some: launch(some, out, console)
            )
        show_results(tried, out)
        if args.best is not None:
            write_best(tried, args.best, out)
        return max(outcome.exit_code for outcome in outcomes)


def overlay_of(args: argparse.Namespace) -> "Overlay":
    """What `--overlay` does to the settings of a trial."""
    from fedcome_ray.experiments import overlay

    return overlay.Overlay(overlay.load(args.overlay) if args.overlay else [])


def make_request(
    args: argparse.Namespace,
    grid_name: str,
    trials: "Sequence[Trial]",
    output: Path,
    data_dir: Path | None,
) -> "Request":
    """The launch that the arguments ask for."""
    cli.quiet_ray()
    from fedcome_ray.launch.launch_old import Request
    from fedcome_ray.runtime import cluster_old as cluster  # imports Ray

    if args.address is not None:
        cluster.check_address(args.address)
    return Request(
        grid_name=grid_name,
        profile=args.profile,
        trials=trials,
        output=output,
        tracking_uri=cli.tracking_uri(args.tracking_uri, output),
        data_dir=data_dir,
        plugins=[str(Path(file).absolute()) for file in args.plugin],
        address=args.address,
        num_shards=args.num_shards,
        cpus_per_shard=args.cpus_per_shard,
        gpus_per_shard=args.gpus_per_shard,
        memory_per_shard=args.memory_per_shard,
        max_concurrent=args.max_concurrent,
        timing=args.timing,
        trace=args.trace,
        system_metrics=args.system_metrics,
        best=getattr(args, "best", None),
    )


def dry_run(request: "Request", out: "Console") -> int:
    """Show trials and cost."""
    from fedcome_ray.launch import plan_old as plan

    finished = {trial.key for trial in request.trials if request.result(trial) is not None}
    pending = [trial for trial in request.trials if trial.key not in finished]
    out.print(plan.plan_table(request.trials, finished))
    layout = request.layout(max(1, len(pending)), os.cpu_count() or 1, 0)
    out.print(f"{plan.words(layout)}\n{plan.cost_words(plan.estimate(pending), layout)}")
    return cli.OK


if __name__ == "__main__":
    sys.exit(main())
