"""A folder of this machine that goes with a place in a storage, which is the truth.

`pull` makes files here what they are there; `push` sends what has changed here. A crash in between
leaves what was there before, or a part of what is new in an order that its writer chose.
"""

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from fedcome_ray.storage.remote import Remote

MARKS = ".marks.json"  # of what was pulled, by name
Stamp = tuple[int, int, int]


class WorkingCopy:
    """Names are paths within the folder; those that begin with a dot are of this machine alone."""

    def __init__(
        self,
        remote: Remote,
        folder: Path,
        last: Sequence[str] = (),
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """`last` are names to push after all others, in order; `check` is called before a push."""
        self.remote = remote
        self.folder = folder
        self._last = last
        self._check = check
        self._kept: dict[str, Stamp] = {}  # by name, as the storage has it

    def pull(
        self, under: str = "", is_wanted: Callable[[str], bool] = lambda name: True
    ) -> list[str]:
        """Make the wanted files below a folder what the storage has; what there is of them."""
        marks = self._read_marks()
        found = {
            name: mark
            for name, mark in self.remote.marks(under).items()
            if is_wanted(name) and not _is_hidden(name)
        }
        stale = [
            name
            for name, mark in found.items()
            if marks.get(name) != mark or not (self.folder / name).exists()
        ]
        arriving = {name: _arriving(self.folder / name) for name in stale}
        self.remote.get(arriving)
        for name in sorted(stale, key=self._rank):
            arriving[name].replace(self.folder / name)
        gone = [name for name in self._local(under) if is_wanted(name) and name not in found]
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)
        self._kept |= {name: _stamp(self.folder / name) for name in found}
        if stale or gone:
            known = {name: mark for name, mark in marks.items() if name not in gone}
            self._write_marks({**known, **{name: found[name] for name in stale}})
        return list(found)

    def push(self, under: str = "") -> None:
        """Send what changed below a folder since it was pulled or pushed, and what is gone."""
        stamps = {name: _stamp(self.folder / name) for name in self._local(under)}
        changed = [name for name, stamp in stamps.items() if self._kept.get(name) != stamp]
        gone = [name for name in self._kept if name not in stamps and name.startswith(under)]
        if not changed and not gone:
            return
        self._check()
        self.remote.put({n: self.folder / n for n in changed if n not in self._last})
        for name in self._last:
            if name in changed:
                self.remote.put({name: self.folder / name})
        self.remote.delete(gone)
        self._kept |= {name: stamps[name] for name in changed}
        for name in gone:
            del self._kept[name]

    def _rank(self, name: str) -> int:
        return self._last.index(name) if name in self._last else -1

    def _local(self, under: str) -> list[str]:
        files = (path for path in (self.folder / under).rglob("*") if path.is_file())
        names = (path.relative_to(self.folder).as_posix() for path in files)
        return [name for name in names if not _is_hidden(name)]

    def _read_marks(self) -> dict[str, str]:
        try:
            marks: dict[str, str] = json.loads((self.folder / MARKS).read_text())
        except (OSError, ValueError):
            return {}  # all is pulled again then
        return marks

    def _write_marks(self, marks: dict[str, str]) -> None:
        path = _arriving(self.folder / MARKS)
        path.write_text(json.dumps(marks))
        path.replace(self.folder / MARKS)


def _arriving(path: Path) -> Path:
    """A file beside it that no other process or thread has."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _stamp(path: Path) -> Stamp:
    """What changes with a file: another one in its place, although of the same size and moment."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
