"""Disks that are too small or cannot be written to, where the tests may mount some."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A few megabytes, as much of them taken as the test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have nothing left, and take again what others give back meanwhile."""
        ballast, is_over = self.folder / "ballast", threading.Event()

        def fill() -> None:
            while not is_over.wait(0.02):
                with suppress(OSError), ballast.open("ab", buffering=0) as file:
                    while file.write(bytes(2**16)):
                        pass

        thread = threading.Thread(target=fill)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            ballast.unlink(missing_ok=True)

    @contextmanager
    def left(self, size: int) -> Iterator[None]:
        """Have it filled up but for so many bytes."""
        state, ballast = os.statvfs(self.folder), self.folder / "ballast"
        ballast.write_bytes(bytes(state.f_bavail * state.f_frsize - size))
        yield
        ballast.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    with _mounted(["-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], folder):
        yield SmallDisk(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder as it is, but nobody can write to it, not even root."""
    with _mounted(["--bind", str(folder), str(folder)], folder):
        _mount("-o", "remount,bind,ro", str(folder))
        yield


@contextmanager
def _mounted(arguments: list[str], folder: Path) -> Iterator[None]:
    _mount(*arguments)
    try:
        yield
    finally:  # at once, though MLflow keeps files of a store open
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not allowed here: {getattr(error, 'stderr', error)}")
