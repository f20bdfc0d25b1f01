"""Where a trial comes from: the commands that ran it, and the code of its plugins, in its folder.

With its settings beside them, a trial can be repeated when the plugins have been edited since, and
the command forgotten: see `fedcome_ray.launch.repeat`.
"""

import re
import shlex
import sys
from functools import partial
from pathlib import Path

from fedcome_ray.errors import without_passwords
from fedcome_ray.experiments.trial import Trial, code_of
from fedcome_ray.trials.checkpoint import replace
from fedcome_ray.trials.folder import COMMANDS, has_checkpoint

PLUGINS = "plugins"  # with a folder for each, named as its file
MAX_LENGTH = 4000  # MLflow's tags hold twice as much


def command_line() -> str:
    """How this process was started, on one line; a password in an address stays out of it."""
    if "ipykernel_launcher" in sys.orig_argv:
        return "(a notebook)"
    text = shlex.join(["python", *sys.orig_argv[1:]])
    return without_passwords(re.sub(r"\s*\n\s*", " ", text))[:MAX_LENGTH]


def keep_origin(trial: Trial, folder: Path, command: str) -> None:
    """Called by the process that begins, or goes on with, a trial for a command."""
    folder.mkdir(parents=True, exist_ok=True)
    for code in code_of(trial):
        for name, content in code.files.items():
            file = folder / PLUGINS / code.name / name
            file.parent.mkdir(parents=True, exist_ok=True)
            replace(file, partial(_write, content))
    known = read_commands(folder)
    if command not in known:
        text = "".join(f"{line}\n" for line in (*known, command))
        save = partial(_write, text.encode())
        replace(folder / COMMANDS, save, is_kept=has_checkpoint(folder))  # else with the first


def kept_plugins(folder: Path) -> list[Path]:
    """The files of plugins that `keep_origin` has left, without what they import."""
    files = (own / f"{own.name}.py" for own in (folder / PLUGINS).glob("*"))
    return sorted(file for file in files if file.is_file())


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def read_commands(folder: Path) -> list[str]:
    """The commands that worked on a trial, the first of them began it."""
    path = folder / COMMANDS
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
