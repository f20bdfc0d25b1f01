"""Whether something fits into this machine's memory, asked before any of it is allocated."""

import os
import subprocess
from functools import cache

from fedcome_ray.errors import ConfigError


@cache
def total_bytes() -> int:
    """The memory of this machine."""
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
