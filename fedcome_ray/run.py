"""Run one trial: `python -m fedcome_ray.run --set method.name=fedcome`."""

import argparse
import sys
from types import ModuleType
from typing import Any

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK, guarded
from fedcome_ray.console.output import Talk
from fedcome_ray.importing import large_modules

EXAMPLES = """\
examples:
  python -m fedcome_ray.run
  python -m fedcome_ray.run --set method.name=fedcome --set participation=0.2 --set rounds=50
  python -m fedcome_ray.run --set data.dataset=synthetic --set model.name=logistic --num-shards 2
  python -m fedcome_ray.run --set seed=1 --init-model results/trials/.../model.safetensors
  python -m fedcome_ray.run --set method.name=fedcome --show
  python -m fedcome_ray.run --from results/trials/... --output again

Without --num-shards and --address the trial runs in this process, without Ray: same numbers.
The same command continues an interrupted trial.
exit codes: 0 finished, 1 failed or interrupted, 2 the request was wrong, 3 MLflow is behind
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.command("fedcome_ray.run", "Run one federated-learning trial.", EXAMPLES)
    arguments.add_common_arguments(parser)
    arguments.add_machine_arguments(parser)
    arguments.add_start_argument(parser)
    arguments.add_output_arguments(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="FOLDER|RUN",
        help="repeat a trial: of this folder, which may be s3://, or of this run in MLflow, given "
        "by its id",
    )
    parser.add_argument(
        "--show",
        action="store_true",
        help="print all settings as YAML, with where each comes from, and stop",
    )
    return parser


def _main(args: argparse.Namespace) -> int:
    talk = Talk.of(args)
    talk.begin("preparing the trial")
    if args.num_shards is None or args.show:
        return _run(args, talk)
    with large_modules():
        from fedcome_ray.runtime.connection import SHARDS, begun

    with begun(arguments.machine_options(args), SHARDS):  # beside what is imported and read
        return guarded(lambda: _run(args, talk))  # what is wrong is said before Ray has stopped


def _run(args: argparse.Namespace, talk: Talk) -> int:
    with large_modules():
        from fedcome_ray.experiments.settings import parse_overrides
        from fedcome_ray.experiments.trial import identified, parse_trial
        from fedcome_ray.launch import repeat, show, single, start
        from fedcome_ray.plugins import load_plugins

    load_plugins(args.plugin)
    init_params = start.read_params(args.init_model) if args.init_model else None
    locations = arguments.locations(args)
    kept = repeat.find(args.origin, locations) if args.origin else None
    if kept is not None:
        locations = repeat.with_plugins(locations, kept)
    draft = single.draft_of(parse_overrides(args.set), init_params, kept)
    (trial,) = identified([parse_trial(draft.settings)], locations.data_dir)
    if args.show:
        sys.stdout.write(show.text(trial, draft.origins))
        return OK
    request = single.SingleRequest(trial, locations, arguments.machine_options(args), init_params)
    return single.run_and_show(request, talk)


class _CallableModule(ModuleType):
    """`fedcome_ray.run` is this command and, for notebooks, the function that runs a trial.

    Importing the command puts the module in the function's place, so it must act as both.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from fedcome_ray.api import run

        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    sys.exit(main())
