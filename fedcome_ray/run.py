"""Run one trial: `python -m fedcome_ray.run --set method.name=fedcome`."""

import argparse
import sys
from pathlib import Path

from fedcome_ray.console import cli_old as cli

EXAMPLES = """\
examples:
  python -m fedcome_ray.run
  python -m fedcome_ray.run --set method.name=fedcome --set participation=0.2 --set rounds=50
  python -m fedcome_ray.run --set data.dataset=synthetic --set model.name=logistic --num-shards 2
  python -m fedcome_ray.run --set seed=1 --init-model results/trials/.../model.safetensors

Without --num-shards and --address the trial runs in this process, without Ray: same numbers.
The same command continues an interrupted trial.
"""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return cli.guarded(lambda: _main(args), portable=args.portable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedcome_ray.run",
        description="Run one federated-learning trial.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_common_arguments(parser)
    cli.add_machine_arguments(parser)
    parser.add_argument(
        "--init-model", type=Path, metavar="PATH", help="params to start from (.safetensors)"
    )
    return parser


def _main(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fedcome_ray import methods
    from fedcome_ray.experiments import grid
    from fedcome_ray.launch.single import SingleRequest, run_single

    methods.load_plugins(args.plugin)
    output = cli.check_output(args.output)
    request = SingleRequest(
        overrides=grid.parse_overrides(args.set),
        output=output,
        tracking_uri=cli.tracking_uri(args.tracking_uri, output),
        data_dir=cli.check_data_dir(args.data_dir),
        plugins=[str(Path(file).absolute()) for file in args.plugin],
        init_model=args.init_model,
        address=args.address,
        num_shards=args.num_shards,
        cpus_per_shard=args.cpus_per_shard,
        gpus_per_shard=args.gpus_per_shard,
        memory_per_shard=args.memory_per_shard,
    )
    run_single(request, Console())
    return cli.OK


if __name__ == "__main__":
    sys.exit(main())
