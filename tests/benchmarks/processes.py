"""CPU time and memory of this process and all it started, Ray's own included (Linux only)."""

import os
from pathlib import Path

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """CPU time so far, user and system."""
    return sum(int(ticks) for stat in _family().values() for ticks in stat[11:13]) / TICK


def resident_bytes() -> int:
    """Proportional resident memory: pages that processes share are counted once."""
    total = 0
    for pid in _family():
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _family() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat from the third on, of this process and its descendants."""
    stats = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        stats[int(path.parent.name)] = text.rpartition(")")[2].split()
    family = {os.getpid()}
    while True:
        children = {pid for pid, stat in stats.items() if int(stat[1]) in family}
        if children <= family:
            return {pid: stats[pid] for pid in family}
        family |= children
