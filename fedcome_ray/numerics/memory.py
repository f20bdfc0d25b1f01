"""Whether something fits into this machine's memory, asked before any of it is allocated."""

import os
import subprocess
from functools import cache
from pathlib import Path

from fedcome_ray.errors import ConfigError
from fedcome_ray.numerics import cgroups


@cache
def total_bytes() -> int:
    """The memory of this machine, or what a container or a batch system leaves of it."""
    return min([_of_the_machine(), *limits()])


def limits(root: Path = cgroups.ROOT) -> list[int]:
    """Bytes, of the control groups that this process is in."""
    names = ("memory.max", "memory.limit_in_bytes")  # of the second version, and of the first
    files = [group / name for group in cgroups.folders("memory", root) for name in names]
    found = [file.read_text().strip() for file in files if file.exists()]
    return [int(limit) for limit in found if limit != "max"]


def _of_the_machine() -> int:
    if "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    command = ["sysctl", "-n", "hw.memsize"]  # of macOS
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def check_fits(num_bytes: float, fields: str) -> None:
    """Refuse what cannot be; `fields` are the settings that make it so large."""
    if num_bytes > total_bytes():
        raise ConfigError(
            f"{fields}: it would take about {num_bytes / 1e9:,.0f} GB of memory, and this machine "
            f"has {total_bytes() / 1e9:,.0f} GB"
        )
