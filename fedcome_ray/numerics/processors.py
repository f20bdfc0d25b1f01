"""How many processors this process may use; the machine may have more, for others."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from fedcome_ray.errors import UserError
from fedcome_ray.numerics import cgroups

SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
"""What Slurm gave the task, and the job on this node; not every Slurm binds processes to it."""


def usable_cpus(variables: Mapping[str, str] | None = None, root: Path = cgroups.ROOT) -> int:
    """The least of what the machine has, its scheduler lets us run on, a container's quota pays for
    and Slurm gave: two launches on one node must not each take the whole of it.

    Ray itself looks at the quota of a container alone.
    """
    given = os.environ if variables is None else variables
    quotas = [quota for one in cgroups.folders("cpu", root) if (quota := _quota(one)) is not None]
    slurm = [_cpus_of(name, given[name]) for name in SLURM if given.get(name)]
    return max(1, math.floor(min([_bound(), *quotas, *slurm])))


def _bound() -> int:
    """Those that the system may run this process on."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(group: Path) -> float | None:
    """Processors' worth of time that a control group may use, None if it may use all."""
    if (limit := group / "cpu.max").exists():
        quota, period = limit.read_text().split()
    elif (limit := group / "cpu.cfs_quota_us").exists():
        quota, period = limit.read_text().strip(), (group / "cpu.cfs_period_us").read_text()
    else:
        return None
    return int(quota) / int(period) if quota.isdecimal() else None  # `max`, or -1


def _cpus_of(name: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and int(value) > 0):
        raise UserError(f"{name}: expected a whole number of at least 1, got `{value}`")
    return int(value)
