"""What produced a result: commit and versions."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


@cache
def provenance() -> dict[str, str]:
    """Commit, whether the checkout had changes, and the versions that decide numbers."""
    packages = ("fedcome-ray", "mlflow", "numpy", "ray", "torch")
    found = {f"version.{name.replace('-', '_')}": version(name) for name in packages}
    commit = _git("rev-parse", "HEAD")
    return {
        "commit": commit or "not a checkout",
        "dirty": str(bool(commit and _git("status", "--porcelain"))).lower(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "version.python": platform.python_version(),
        **found,
    }


def commits(results: Iterable[Mapping[str, Any]]) -> str:
    """The commits that made some results, shortened; this one's if there are none."""
    found = {result["provenance"]["commit"] for result in results}
    return "/".join(sorted(commit[:10] for commit in found or {provenance()["commit"]}))


def _git(*words: str) -> str:
    """The answer of git about the checkout that this package is in, empty if it is in none."""
    folder = Path(__file__).parent
    if not (folder.parent / ".git").exists():
        return ""  # installed somewhere that may lie inside an unrelated repository
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
