"""What is printed, and where the noise of libraries goes."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedcome_ray.console.paths import default_tracking_uri

if TYPE_CHECKING:
    from rich.console import Console


def say(out: "Console", text: str, style: str | None = None) -> None:
    """Print text as it is: paths and messages may contain what Rich takes for markup."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_where(out: "Console", results: Path, output: Path, uri: str) -> None:
    """Where to look next, ready to be copied."""
    say(out, f"results    {results}")
    if uri == default_tracking_uri(output):
        say(out, f"compare    python -m fedcome_ray.ui --output {shlex.quote(str(output))}")
    else:
        say(out, f"compare    mlflow ui --backend-store-uri {shlex.quote(uri)}")


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
