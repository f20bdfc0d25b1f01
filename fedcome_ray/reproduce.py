"""Run all grids and write the report: `python -m fedcome_ray.reproduce`."""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded
from fedcome_ray.console.output import Talk, doing, noise_to
from fedcome_ray.errors import UserError

if TYPE_CHECKING:
    from fedcome_ray.experiments.trial import Trial
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
exit codes: 0 everything finished, 1 some trials failed or were interrupted, 2 the request was
  wrong, 3 all finished, but MLflow is behind: it failed, and the same command mirrors the results
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
    arguments.add_output_arguments(parser)
    return parser


def _main(args: argparse.Namespace) -> int:
    talk = Talk.of(args)
    if args.json and not args.dry_run:
        raise UserError("--json: only with --dry-run; the results are in the files of the report")
    talk.begin("reading the grids")
    from fedcome_ray import datasets
    from fedcome_ray.experiments import grid
    from fedcome_ray.launch import grids
    from fedcome_ray.launch.outcome import Outcome

    trials = grids.trials_of(args, *(args.only or grid.grid_names()))
    if args.dry_run:
        show_cost(args, trials, talk)
        return OK
    requests = [grids.make_request(args, name, some) for name, some in trials.items()]
    for request in requests:  # all missing data is named before the first grid starts
        for config in {trial.data for trial in request.trials}:
            datasets.check_available(config, request.locations.data_dir)
    outcomes = run_grids(requests, talk)
    code = Outcome.of_all(outcomes).exit_code
    if outcomes[-1].is_interrupted:
        return code
    return write_report(requests[0], talk) or code


def show_cost(args: argparse.Namespace, trials: "Mapping[str, list[Trial]]", talk: Talk) -> None:
    """The cost of each grid and of all, on this machine or on a cluster of so many CPUs."""
    from fedcome_ray.launch import cost, document
    from fedcome_ray.numerics import device, processors

    machine = arguments.machine_options(args)
    if args.cpus and machine.wants_gpus:
        raise UserError(f"--cpus: got `{args.cpus}`, but trials are to compute on GPUs")
    is_on_cpus = args.cpus or machine.refuses_gpus or machine.num_gpus == 0
    on = device.CPU if is_on_cpus else device.wished("gpu" if machine.wants_gpus else "auto")
    gpus = 0 if on == device.CPU else len(device.usable_gpus()[: machine.num_gpus])
    cores = args.cpus or machine.num_cpus or processors.usable_cpus()
    workers = cost.Workers(gpus, "GPU") if gpus else cost.Workers(cores, "CPU")
    progress = talk.progress()
    every = [trial for some in trials.values() for trial in some]
    rates = cost.calibrate(every, lambda text: doing(progress, text), on)
    costs = {name: cost.estimate(some, rates) for name, some in trials.items()}
    numbers = {name: len(some) for name, some in trials.items()}
    talk.document(
        {
            "profile": args.profile,
            "cpus": cores,
            "gpus": gpus,
            "grids": [
                {"grid": name, "trials": numbers[name], "cost": document.of_cost(own)}
                for name, own in costs.items()
            ],
        }
    )
    talk.results().print(cost.cost_table(costs, numbers, workers))


def run_grids(requests: "list[Request]", talk: Talk) -> "list[Outcome]":
    """One grid after the other on one cluster; an interruption ends them all."""
    from fedcome_ray.launch.conclusion import conclude
    from fedcome_ray.launch.launch import launch
    from fedcome_ray.launch.request import Finished
    from fedcome_ray.runtime.connection import connected

    outcomes = []
    with noise_to(requests[0].log) as stderr:
        console, out = talk.progress(stderr), talk.results(stderr)
        with connected(requests[0].machine, console):
            for request in requests:
                out.rule(request.grid_name)
                outcomes.append(launch(request, console))
                conclude(Finished.read(request), outcomes[-1], out)
                if outcomes[-1].is_interrupted:
                    break
    return outcomes


def write_report(request: "Request", talk: Talk) -> int:
    from fedcome_ray import report

    talk.results().rule("report")
    locations = request.locations
    output = locations.shown(locations.output)
    where = ["--output", output, "--tracking-uri", locations.tracking_uri]
    wanted = ["--grid", "all", *where]
    return report.main(wanted)


if __name__ == "__main__":
    sys.exit(main())
