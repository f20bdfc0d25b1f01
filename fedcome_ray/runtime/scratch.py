"""Temporary folders with an owner: gone with it, or with a later launch if it was killed.

A folder has a mark, a file that its owner holds a lock on. The system lets go of the lock when the
process ends, however it does; so a mark that can be locked is of a process that is dead, whatever
has its number now. Locks need not hold across machines: the mark says which one it is of.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PREFIX = "fedcome-"
MARK, KEPT = ".fedcome-owner", ".fedcome-kept"
_TRIES = 3
"""Of a removal: another thread or process may be about to write."""

_own: dict[Path, IO[str] | None] = {}
"""The folders of this process, with the files that it holds locks on."""


@contextmanager
def folder(kind: str) -> Iterator[Path]:
    """A temporary folder that is gone afterwards."""
    made = make(kind)
    try:
        yield made
    finally:
        remove(made)


def make(kind: str) -> Path:
    """A temporary folder of this process; those of dead ones are removed."""
    sweep()
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
    own(made)
    return made


def own(folder: Path) -> None:
    """Make a folder that is there this process's."""
    _own[folder] = None
    with suppress(OSError):  # of a disk that is full, say: then nobody removes it later
        _own[folder] = _mark(folder)


def _mark(folder: Path) -> IO[str]:
    new = folder / f"{MARK}.new"
    file = new.open("x")
    file.write(platform.node())
    file.flush()
    with suppress(OSError):  # of a disk without locks: nobody can take it for a dead one's
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    new.rename(folder / MARK)  # which nobody sees without its lock
    return file


def is_own(folder: Path) -> bool:
    return folder in _own


def keep(folder: Path) -> None:
    """Let a folder with an owner stay, for its user to look into; any process may ask for it."""
    with suppress(OSError):
        (folder / MARK).rename(folder / KEPT)


def is_kept(folder: Path) -> bool:
    return (folder / KEPT).exists()


def release(folder: Path) -> None:
    """Be the owner of a folder no longer, which stays."""
    file = _own.pop(folder, None)
    if file is not None:
        file.close()


def remove(folder: Path) -> None:
    """Remove a folder of this process."""
    file = _own.pop(folder, None)
    for _ in range(_TRIES):
        with suppress(OSError), _opened(folder) as place:
            _clear(folder, place)
        if not folder.exists():
            break
    if file is not None:
        file.close()


def remove_temporary() -> None:
    """Remove all temporary folders of this process, which is about to end."""
    for made in list(_own):
        if made.name.startswith(PREFIX):
            remove(made)


def sweep(parent: Path | None = None, names: str = f"{PREFIX}*") -> None:
    """Remove the folders of processes of this user and machine that are dead."""
    for mark in (parent or Path(tempfile.gettempdir())).glob(f"{names}/{MARK}"):
        with suppress(OSError), _opened(mark.parent) as place:
            _remove_if_dead(mark.parent, place)


def sweep_sessions(folder: Path) -> None:
    """The same with Ray's sessions, and its link to the latest: Ray makes none where one is."""
    sweep(folder, "session_*")
    link = folder / "session_latest"
    with suppress(OSError):
        if link.is_symlink() and not link.exists():
            link.unlink()


def sweep_afterwards(sessions: Path) -> None:
    """Let another process sweep when this one has ended, which may be at any moment."""
    given = [str(os.getpid()), tempfile.gettempdir(), str(sessions)]
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # others may be told to stop with their whole group
    )


def _remove_if_dead(folder: Path, place: int) -> None:
    """Or raise OSError, also if its owner lives."""
    mark = os.open(MARK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=place)  # some only lock what is written
    with os.fdopen(mark) as file:
        users = {os.fstat(mark).st_uid, os.fstat(place).st_uid}  # anyone may write into Ray's
        if users == {os.getuid()} and file.read() == platform.node():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(folder, place)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder itself, never what another user has linked to in its place."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield place
    finally:
        os.close(place)


def _clear(folder: Path, place: int) -> None:
    """Its mark last: if this process is killed meanwhile, another goes on."""
    for name in os.listdir(place):
        if name != MARK:
            try:
                os.unlink(name, dir_fd=place)
            except OSError:  # a folder
                shutil.rmtree(name, ignore_errors=True, dir_fd=place)
    shutil.rmtree(folder, ignore_errors=True)


def _sweep_after(parent: int, folder: Path, sessions: Path) -> None:
    while os.getppid() == parent:
        time.sleep(0.1)
    time.sleep(1.0)  # its Ray ends with it
    sweep(folder)
    sweep_sessions(sessions)


if __name__ == "__main__":
    _sweep_after(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
