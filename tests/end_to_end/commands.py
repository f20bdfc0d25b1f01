"""The commands as a user runs them: in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(
    module: str, *arguments: str, timeout: float = 300, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`variables` are of its environment."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env={**environment(), **variables},
        check=False,
    )


def start(module: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """`variables` are of its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment(), **variables},
        process_group=0,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
