"""What there is to run: `python -m fedcome_ray`."""

import argparse
import sys

from fedcome_ray.console import arguments
from fedcome_ray.console.exits import OK

COMMANDS = {
    "run": "one trial, in this process or on Ray",
    "tune": "a grid of trials, a sweep or a search, on Ray",
    "reproduce": "all grids of the paper, then the report",
    "report": "tables, figures and claims of what was run",
    "ui": "compare trials in MLflow",
    "settings": "all settings of a trial, and a schema of grids for editors",
    "data": "datasets: list, download, import, verify, show",
    "doctor": "is this machine, or this cluster, fit",
}


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    _, others = parser.parse_known_args(argv)
    if others:
        meant = f"; did you mean `python -m fedcome_ray.{others[0]}`?" * (others[0] in COMMANDS)
        parser.error(f"`{others[0]}` is no argument{meant}")
    sys.stdout.write(listing())
    return OK


def _parser() -> argparse.ArgumentParser:
    return arguments.command("fedcome_ray", "List the commands.", listing())


def listing() -> str:
    """The commands, one line each."""
    lines = [f"python -m fedcome_ray.{name:9}  {text}" for name, text in COMMANDS.items()]
    return "\n".join([*lines, "", "Each has --help with examples.", ""])


if __name__ == "__main__":
    sys.exit(main())
