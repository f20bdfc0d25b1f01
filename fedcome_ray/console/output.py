"""What is printed, and where the noise of libraries goes."""

import argparse
import json
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedcome_ray.console.options import Locations
from fedcome_ray.console.paths import default_tracking_uri
from fedcome_ray.errors import without_passwords

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Talk:
    """How a command talks: results on stdout and the rest on stderr; JSON is alone on stdout."""

    quiet: bool = False  # nothing but results and errors
    json: bool = False
    stdout: IO[str] = field(default_factory=lambda: sys.stdout)
    """Bound when the command begins: while trials run, stdout is redirected."""

    @staticmethod
    def of(args: argparse.Namespace) -> "Talk":
        """As the arguments of `add_output_arguments` want it."""
        return Talk(args.quiet, args.json)

    def begin(self, text: str) -> None:
        """The first words, which do not wait for slow imports."""
        if not self.quiet:
            print(f"{text} ...", file=sys.stderr, flush=True)  # noqa: T201

    def progress(self, stderr: IO[str] | None = None) -> "Console":
        """Where to say what is being done."""
        from rich.console import Console

        return Console(file=stderr or sys.stderr, quiet=self.quiet)

    def results(self, stderr: IO[str] | None = None) -> "Console":
        """Where to show results to people."""
        from rich.console import Console

        return self.progress(stderr) if self.json else Console(file=self.stdout)

    def document(self, content: Mapping[str, Any]) -> None:
        """The results for programs, if they are wanted."""
        if self.json:
            self.stdout.write(json.dumps(_finite(content), indent=2) + "\n")
            self.stdout.flush()


def _finite(value: Any) -> Any:
    """JSON has no numbers that are not finite; null says that there is none."""
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def doing(console: "Console", text: str) -> None:
    """What takes a while and begins now; a notebook shows that its cell is busy by itself."""
    if not console.is_jupyter:
        say(console, f"{text} ...")


def say(out: "Console", text: str, style: str | None = None) -> None:
    """Print text as it is: paths and messages may contain what Rich takes for markup."""
    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def tell(out: "Console", text: str, style: str | None = None) -> None:
    """Print sentences, which may be broken between words; what is to be copied must not be."""
    out.print(text, style=style, markup=False, highlight=False)


def say_where(out: "Console", results: Path, locations: Locations) -> None:
    """Where to look next, ready to be copied."""
    output, uri = locations.output, locations.tracking_uri
    say(out, f"results    {locations.shown(results)}")
    if locations.storage is not None:
        say(out, f"copy here  {output}")
    if uri == default_tracking_uri(output):
        shown = shlex.quote(locations.shown(output))
        say(out, f"compare    python -m fedcome_ray.ui --output {shown}")
    elif uri.startswith("http"):
        say(out, f"compare    {without_passwords(uri)}")
    else:
        store = shlex.quote(without_passwords(uri))
        say(out, f"compare    mlflow ui --backend-store-uri {store}")


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
