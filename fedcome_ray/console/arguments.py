"""The arguments that commands share, and the records made of them."""

import argparse
import math
from pathlib import Path

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.console.paths import check_data_dir, open_output, tracking_uri
from fedcome_ray.errors import cut
from fedcome_ray.version import __version__


def command(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """The parser of a command; the epilog has examples and is shown as it is written."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    return parser


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"fedcome_ray {__version__}")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say how a command talks, see `fedcome_ray.console.output.Talk`."""
    parser.add_argument("--quiet", action="store_true", help="nothing but results and errors")
    parser.add_argument(
        "--json", action="store_true", help="results as JSON on stdout, all else on stderr"
    )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that every program which runs trials has."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of every trial, by dotted name, e.g. --set local.lr=0.1; may be repeated",
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file with methods, models, samplers or datasets of your own; may be "
        "repeated",
    )
    add_location_arguments(parser)
    parser.add_argument(
        "--log-every",
        type=positive_int,
        metavar="N",
        help="only rounds 0, N, 2N, ... and the last become metrics in MLflow (default: all); the "
        "files of a trial have every round",
    )


def add_start_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--init-model", type=Path, metavar="PATH", help="params to start from (.safetensors)"
    )


def add_location_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where data comes from and where results go."""
    add_output_argument(parser)
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="folder of datasets (default: FEDCOME_DATA_DIR, else the cache folder of the user)",
    )
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow store (default: an SQLite file in the output folder; of s3://, in its copy on "
        "this machine)",
    )


def add_output_argument(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument(
        "--output",
        default="results",
        help=f"folder of results, or s3://BUCKET/PREFIX (default: results){more}",
    )


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say how trials are laid out, not what they are."""
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="a Ray cluster to join, or `auto` on one of its nodes and in its jobs (default: a "
        "private one)",
    )
    parser.add_argument(
        "--num-cpus",
        type=positive_int,
        metavar="N",
        help="of a private Ray (default: what a container, Slurm or the system leave this process)",
    )
    parser.add_argument(
        "--num-gpus",
        type=natural_int,
        metavar="N",
        help="of a private Ray (default: those of CUDA_VISIBLE_DEVICES, or all)",
    )
    parser.add_argument(
        "--object-store-memory",
        type=megabytes,
        metavar="MB",
        help="of a private Ray, for datasets and messages (default: 30 %% of the memory)",
    )
    parser.add_argument(
        "--portable",
        action="store_true",
        help="compute with instructions that all x86-64 machines with AVX2 share: slower, but the "
        "same bits on each of them",
    )
    parser.add_argument("--num-shards", type=positive_int, metavar="N", help="shards of a trial")
    parser.add_argument(
        "--cpus-per-shard",
        type=positive_float,
        metavar="X",
        help="reserved, may be < 1; a shard computes with one thread",
    )
    parser.add_argument(
        "--gpus-per-shard",
        type=amount,
        metavar="X",
        help="0, 1, or a part of 1, as 0.25",
    )
    parser.add_argument(
        "--device",
        choices=["auto", "cpu", "gpu"],
        default="auto",
        help="what trains clients (default: a GPU where PyTorch can use one)",
    )
    parser.add_argument(
        "--memory-per-shard",
        type=megabytes,
        metavar="MB",
        help="for clients that are trained together (default: 256, on a GPU what its share holds)",
    )


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the programs that run many trials."""
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="a setting that takes several values, e.g. --axis seed=0,1,2; may be repeated: trials "
        "are the product",
    )
    parser.add_argument(
        "--seeds",
        dest="axis",
        action="append",
        type="seed={}".format,
        metavar="S1,S2",
        help="the same as --axis seed=S1,S2: every trial, or candidate of a search, with each seed",
    )
    parser.add_argument(
        "--max-concurrent", type=positive_int, metavar="N", help="trials at the same time"
    )
    parser.add_argument(
        "--overlay", type=Path, metavar="FILE", help="best settings of a search, see --best"
    )
    parser.add_argument("--timing", action="store_true", help="show where the time went")
    parser.add_argument("--trace", action="store_true", help="write a timeline of all rounds")
    parser.add_argument(
        "--system-metrics",
        action="store_true",
        help="track memory, CPU time and load of a trial's server process",
    )


def positive_int(text: str) -> int:
    return _whole(text, 1)


def natural_int(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not (is_number and int(text) >= least):
        wanted = f"expected a whole number of at least {least}"
        raise argparse.ArgumentTypeError(f"{wanted}, got `{cut(text)}`")
    return int(text)


def share(text: str) -> float:
    value = _real(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"expected a number above 0 and below 1, got `{cut(text)}`"
        )
    return value


def positive_float(text: str) -> float:
    value = _real(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{cut(text)}`")
    return value


def amount(text: str) -> float:
    value = _real(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got `{cut(text)}`")
    return value


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def megabytes(text: str) -> int:
    return positive_int(text) * 2**20


def machine_options(args: argparse.Namespace) -> MachineOptions:
    """The wishes of `add_machine_arguments`, and of `add_launch_arguments` if there are any."""
    return MachineOptions(
        address=args.address,
        num_cpus=args.num_cpus,
        num_gpus=args.num_gpus,
        object_store_memory=args.object_store_memory,
        num_shards=args.num_shards,
        cpus_per_shard=args.cpus_per_shard,
        gpus_per_shard=args.gpus_per_shard,
        memory_per_shard=args.memory_per_shard,
        max_concurrent=getattr(args, "max_concurrent", None),
        device=args.device,
    )


def locations(args: argparse.Namespace) -> Locations:
    """The folders of `add_common_arguments`, checked."""
    data_dir, output = check_data_dir(args.data_dir), open_output(args.output)
    return Locations(
        output=output.folder,
        storage=output.storage,
        tracking_uri=tracking_uri(args.tracking_uri, output.folder),
        data_dir=data_dir,
        plugins=tuple(str(Path(file).absolute()) for file in args.plugin),
        log_every=args.log_every,
    )
