"""The control groups by which Linux, containers and batch systems limit a process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

ROOT = Path("/")


def folders(controller: Literal["cpu", "memory"], root: Path = ROOT) -> Iterator[Path]:
    """The groups of this process, its own and those around it: each may set a limit.

    A container often shows its own group as the outermost, under a path that does not exist there.
    """
    table = root / "proc/self/cgroup"
    if not table.exists():  # another system than Linux
        return
    for line in table.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # The second version of control groups has one tree, which names no controllers.
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        own = top / path.lstrip("/")
        yield from (one for one in (own, *own.parents) if one.is_relative_to(top) and one.is_dir())
