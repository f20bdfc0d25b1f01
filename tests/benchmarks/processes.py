"""CPU time and memory of this process and all it started, Ray's own included (Linux only)."""

import ctypes
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")
SET_CHILD_SUBREAPER = 36  # of prctl(2)

Stats = dict[int, list[str]]
"""By process, the fields of /proc/PID/stat from the third on."""


def cpu_seconds() -> float:
    """CPU time so far, user and system."""
    return sum(int(ticks) for stat in _family().values() for ticks in stat[11:13]) / TICK


def cpu_seconds_by_process() -> dict[int, float]:
    """The same of each process that has not ended."""
    return {pid: sum(map(int, stat[11:13])) / TICK for pid, stat in _family().items()}


def peak_bytes(pid: int) -> int:
    """The most memory that was ever resident in a process."""
    status = (PROC / str(pid) / "status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])


def resident_bytes() -> int:
    """Proportional resident memory: pages that processes share are counted once."""
    return _proportional_bytes(_family())


class Offspring:
    """What this process starts from now on, and all that follows from it, orphans too."""

    def __init__(self) -> None:
        self._before = {*_children(_stats()), os.getpid()}
        self._ended_before = self._ended_ticks(_stats())

    def cpu_seconds(self) -> float:
        """CPU time so far, user and system, of processes that have ended too."""
        stats = _stats()
        own = sum(int(ticks) for pid in self._pids(stats) for ticks in stats[pid][11:15])
        return (own + self._ended_ticks(stats) - self._ended_before) / TICK

    def resident_bytes(self) -> int:
        return _proportional_bytes(self._pids(_stats()))

    def end(self) -> None:
        while pids := self._pids(_stats()):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in pids:
                with suppress(ChildProcessError):  # not a child of ours, until its parent is gone
                    os.waitpid(pid, 0)

    def _pids(self, stats: Stats) -> set[int]:
        return _descendants(stats, _children(stats) - self._before)

    def _ended_ticks(self, stats: Stats) -> int:
        """Of those that this process waited for."""
        return sum(map(int, stats[os.getpid()][13:15]))


@contextmanager
def offspring() -> Iterator[Offspring]:
    """Follow what is started here; nothing of it is left afterwards."""
    _adopt_orphans(True)
    found = Offspring()
    try:
        yield found
    finally:
        found.end()
        _adopt_orphans(False)


def _adopt_orphans(is_wanted: bool) -> None:
    """Whether this process becomes the parent of those whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Usage(NamedTuple):
    """What a process holds."""

    command: str
    resident_bytes: int
    proportional_bytes: int  # depends on who else uses the same libraries
    open_files: int

    @property
    def name(self) -> str:
        return self.command.split(" ")[0].rpartition("/")[2]


def usages(root: int | None = None) -> dict[int, Usage]:
    """Of a process, this one unless another is named, and its descendants, by process id."""
    return _usages(_descendants(_stats(), {root or os.getpid()}))


def _usages(pids: Iterable[int]) -> dict[int, Usage]:
    found = {}
    for pid in pids:
        own = PROC / str(pid)
        try:
            lines = (own / "smaps_rollup").read_text().splitlines()[1:]
            sizes = {name: 1024 * int(size) for name, size, _ in map(str.split, lines)}
            command = (own / "cmdline").read_text().replace("\0", " ")
            files = len(list((own / "fd").iterdir()))
            found[pid] = Usage(command, sizes["Rss:"], sizes["Pss:"], files)
        except OSError:  # it has just ended
            continue
    return found


def _proportional_bytes(pids: Iterable[int]) -> int:
    return sum(used.proportional_bytes for used in _usages(pids).values())


def _family() -> Stats:
    """Of this process and its descendants."""
    stats = _stats()
    return {pid: stats[pid] for pid in _descendants(stats, {os.getpid()})}


def _stats() -> Stats:
    stats = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        stats[int(path.parent.name)] = text.rpartition(")")[2].split()
    return stats


def _children(stats: Stats) -> set[int]:
    return {pid for pid, stat in stats.items() if int(stat[1]) == os.getpid()}


def _descendants(stats: Stats, roots: Collection[int]) -> set[int]:
    """The roots among them."""
    family = set(roots)
    while True:
        children = {pid for pid, stat in stats.items() if int(stat[1]) in family}
        if children <= family:
            return family
        family |= children
