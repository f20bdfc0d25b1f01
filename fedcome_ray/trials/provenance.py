"""What produced a result: commit, versions, and what it was computed with."""

import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.environment import is_portable
from fedcome_ray.numerics.libraries import Arithmetic, comparable
from fedcome_ray.version import __version__

CHECKOUT = Path(__file__).parents[2]  # if it is one
NO_CHECKOUT = "not a checkout"  # in place of a commit
CODE = ("fedcome_ray", "tune_configs")
"""What decides a number, in a checkout; new files too, since they can be imported."""


@cache
def provenance() -> dict[str, str]:
    """Commit, whether the code had changes since, and the versions that decide numbers."""
    found = {f"version.{name}": version(name) for name in ("mlflow", "numpy", "ray", "torch")}
    commit = _git(CHECKOUT, "rev-parse", "HEAD")
    return {
        "commit": commit or NO_CHECKOUT,
        "dirty": str(bool(commit) and has_changes(CHECKOUT)).lower(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "version.fedcome_ray": __version__,
        "version.python": platform.python_version(),
        **found,
    }


def commits(producers: Iterable[Mapping[str, str]]) -> str:
    """The commits that made some results, shortened; this one's if there are none."""
    found = {producer["commit"] for producer in producers}
    known = found or {provenance()["commit"]}
    return "/".join(sorted(one if one == NO_CHECKOUT else one[:10] for one in known))


def refuse_plain(computed_with: Iterable[Arithmetic], folder: Path) -> None:
    """Refuse to call portable what was computed, or begun, without that."""
    if is_portable() and any(one["portable"] != "true" for one in computed_with):
        raise UserError(
            f"--portable: {folder} was computed without it; give another --output, or delete it"
        )


def cautions(computed_with: Collection[Sequence[Arithmetic]]) -> list[str]:
    """What a reader of results, side by side, should know of what each was computed with."""
    lines = []
    if differing := _differing(computed_with):
        lines.append(
            f"these trials were not all computed alike ({differing}): "
            f"on processors their last bits are comparable with --portable"
        )
    dependent = {
        one["cpu"] if one["device"] == "cpu" else one["device"]
        for records in computed_with
        for one in records
        if not one["company"].startswith("independent")
    }
    if dependent:
        lines.append(
            f"results may depend on the number of shards on this machine: "
            f"{', '.join(sorted(dependent))}; see python -m fedcome_ray.doctor"
        )
    return lines


def _differing(computed_with: Collection[Sequence[Arithmetic]]) -> str:
    """The names under which trials differ, with their values.

    The processes of one trial may differ, as a server on a processor and shards on GPUs do: what
    counts is that other trials do in the same way.
    """
    trials = [[dict(comparable(one)) for one in records] for records in computed_with]
    every = [set(one) for records in trials for one in records]
    names = sorted(set.intersection(*every)) if every else []  # portable ones need no processor

    def used(name: str, records: Sequence[Arithmetic]) -> str:
        return " + ".join(sorted({one.get(name, "-") for one in records}))

    values = {name: sorted({used(name, records) for records in trials}) for name in names}
    return "; ".join(f"{k}: {' | '.join(v)}" for k, v in values.items() if len(v) > 1)


def has_changes(checkout: Path) -> bool:
    """Whether the code in a checkout is not that of its commit; notes and pictures are no code."""
    return bool(_git(checkout, "status", "--porcelain", "--untracked-files=all", "--", *CODE))


def _git(checkout: Path, *words: str) -> str:
    """The answer of git, empty where there is no checkout."""
    if not (checkout / ".git").exists():
        return ""  # installed somewhere that may lie inside an unrelated repository
    try:
        command = ["git", "-C", str(checkout), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
