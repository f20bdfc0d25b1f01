"""What produced a result: commit and versions."""

import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.environment import is_portable
from fedcome_ray.numerics.libraries import Arithmetic, comparable


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


def commits(producers: Iterable[Mapping[str, str]]) -> str:
    """The commits that made some results, shortened; this one's if there are none."""
    found = {producer["commit"] for producer in producers}
    return "/".join(sorted(commit[:10] for commit in found or {provenance()["commit"]}))


def check_portable(computed_with: Iterable[Arithmetic], folder: Path) -> None:
    """Refuse to call portable what was computed, or begun, without that."""
    if is_portable() and any(one["portable"] != "true" for one in computed_with):
        raise UserError(
            f"--portable: {folder} was computed without it; give another --output, or delete it"
        )


def cautions(found: Collection[Arithmetic]) -> list[str]:
    """What a reader of results, side by side, should know of what they were computed with."""
    lines = []
    if differing := _differing(found):
        lines.append(
            f"these trials were not all computed alike ({differing}): "
            f"their last bits are comparable only with --portable"
        )
    if machines := sorted({one["cpu"] for one in found if one["company"] != "independent"}):
        lines.append(
            f"results may depend on the number of shards on this machine: "
            f"{', '.join(machines)}; see python -m fedcome_ray.doctor"
        )
    return lines


def _differing(found: Collection[Arithmetic]) -> str:
    """The names under which records differ, with their values."""
    records = [dict(comparable(one)) for one in found]
    names = dict.fromkeys(name for record in records for name in record)
    values = {name: sorted({record.get(name, "-") for record in records}) for name in names}
    return "; ".join(f"{k}: {' | '.join(v)}" for k, v in values.items() if len(v) > 1)


def _git(*words: str) -> str:
    """The answer of git about the checkout that this package is in, empty if it is in none."""
    folder = Path(__file__).parents[1]
    if not (folder.parent / ".git").exists():
        return ""  # installed somewhere that may lie inside an unrelated repository
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
