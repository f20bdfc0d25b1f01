"""Where a trial comes from: the commands that ran it, and the code of its plugin, in its folder.

With its settings beside them, a trial can be repeated when the plugin has been edited since, and
the command forgotten: see `fedcome_ray.launch.repeat`.
"""

import re
import shlex
import sys
from pathlib import Path

from fedcome_ray import methods
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.trials.checkpoint import replace

COMMANDS = "commands.txt"
PLUGIN = "plugin.py"
MAX_LENGTH = 4000  # MLflow's tags hold twice as much


def command_line() -> str:
    """How this process was started, on one line; a password in an address stays out of it."""
    if "ipykernel_launcher" in sys.orig_argv:
        return "(a notebook)"
    text = shlex.join(["python", *sys.orig_argv[1:]])
    return without_passwords(re.sub(r"\s*\n\s*", " ", text))[:MAX_LENGTH]


def without_passwords(text: str) -> str:
    """Addresses like `https://me:secret@host` are shown as `https://***@host`."""
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)


def keep_origin(trial: Trial, folder: Path, command: str) -> None:
    """Called by the process that begins, or goes on with, a trial for a command."""
    folder.mkdir(parents=True, exist_ok=True)
    source = methods.source_of(trial.method)
    if source is not None:
        replace(folder / PLUGIN, lambda path: path.write_bytes(source))
    known = read_commands(folder)
    if command not in known:
        text = "".join(f"{line}\n" for line in (*known, command))
        replace(folder / COMMANDS, lambda path: path.write_text(text, encoding="utf-8"))


def read_commands(folder: Path) -> list[str]:
    """The commands that worked on a trial, the first of them began it."""
    path = folder / COMMANDS
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
