"""What the command-line programs share: arguments, checks of folders, the way errors are shown."""

import argparse
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedcome_ray.errors import FedcomeError, UserError
from fedcome_ray.numerics import environment

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = "interrupted; the same command goes on"


def guarded(action: Callable[[], int], *, portable: bool = False) -> int:
    """Run a program; a user's mistake is shown as its text, without a traceback."""
    try:
        if portable:
            environment.make_portable()  # before `action` imports NumPy
        return action()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return USAGE
    except FedcomeError as error:
        print(f"failed: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    except OSError as error:  # a full disk, a folder that was removed
        print(f"failed: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)  # noqa: T201
        return FAILED


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, to be asked where stopping is safe; the second time insists."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, previous)


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
        help="a Python file with a method of your own; may be repeated",
    )
    add_place_arguments(parser)


def add_place_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say where data comes from and where results go."""
    parser.add_argument(
        "--output", type=Path, default=Path("results"), help="folder of results (default: results)"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="folder of datasets (default: the cache folder of the user)"
    )
    parser.add_argument(
        "--tracking-uri",
        metavar="URI",
        help="MLflow store (default: an SQLite file in the output folder)",
    )


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say how trials are laid out; none of them changes a result."""
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="a Ray cluster to join (default: a private one)"
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
    parser.add_argument("--gpus-per-shard", type=amount, metavar="X", help="may be < 1")
    parser.add_argument(
        "--memory-per-shard",
        type=megabytes,
        metavar="MB",
        help="for clients that are trained together (default: 256)",
    )


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the programs that run many trials."""
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
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got `{text}`")
    return value


def positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{text}`")
    return value


def amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got `{text}`")
    return value


def megabytes(text: str) -> int:
    return positive_int(text) * 2**20


def check_output(folder: Path) -> Path:
    """The output folder, made if need be; it must take files."""
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--output: cannot write to `{folder}`: {error.strerror}") from None
    return folder


def check_data_dir(folder: Path | None) -> Path | None:
    """The data folder, which must be readable if it is given."""
    if folder is None:
        return None
    folder = folder.expanduser().absolute()
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"--data-dir: cannot read `{folder}`: {error.strerror}") from None
    return folder


def tracking_uri(given: str | None, output: Path) -> str:
    """The store that is asked for, or a file in the output folder."""
    if given is None and re.search(r"\?|%[0-9A-Fa-f]{2}", str(output)):
        raise UserError(
            f"--output: `{output}` has a `?` or something like `%20`, which mean something else in "
            f"the address of an SQLite store; take another folder or give --tracking-uri"
        )
    return given or f"sqlite:///{output / 'mlflow.db'}"


def say(out: "Console", text: str, style: str | None = None) -> None:
    """Print text as it is: paths and messages may contain what Rich takes for markup."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_where(out: "Console", results: Path, output: Path, uri: str) -> None:
    """Where to look next, ready to be copied."""
    say(out, f"results    {results}")
    if uri == tracking_uri(None, output):
        say(out, f"compare    python -m fedcome_ray.ui --output {shlex.quote(str(output))}")
    else:
        say(out, f"compare    mlflow ui --backend-store-uri {shlex.quote(uri)}")


def quiet_ray() -> None:
    """Before Ray is imported: our own display replaces Tune's, our own files its loggers."""
    os.environ |= {
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    }


@contextmanager
def noise_to(log: Path) -> Iterator[IO[str]]:
    """Send what libraries and their child processes print to a log; yields the real stderr."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as real:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        try:
            with redirect_stdout(sys.stderr):  # Ray's news of dead processes
                yield real
        finally:
            sys.stderr.flush()
            os.dup2(real.fileno(), 2)
