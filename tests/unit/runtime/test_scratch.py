"""Temporary folders with an owner: those of the living stay, those of the dead do not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedcome_ray.runtime import scratch

OWNER = """
import sys, tempfile, time
from fedcome_ray.runtime import scratch

tempfile.tempdir = sys.argv[1]
made = scratch.make("try")
(made / "deep").mkdir()
(made / "deep" / "file").touch()
print(made, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def another_owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_is_gone_with_its_use_whatever_is_in_it(folder: Path) -> None:
    with scratch.folder("try") as made:
        assert made.parent == folder
        (made / "deep").mkdir()
        (made / "deep" / "file").touch()
        (made / "link").symlink_to(folder)
    assert list(folder.iterdir()) == []


def test_a_folder_stays_for_as_long_as_its_owner_lives(folder: Path) -> None:
    with another_owner(folder) as (process, theirs), scratch.folder("try") as ours:
        scratch.sweep()
        assert {*folder.iterdir()} == {ours, theirs}
        process.send_signal(signal.SIGKILL)
        process.wait()
        scratch.sweep()
        assert {*folder.iterdir()} == {ours}


def test_folders_without_a_mark_or_of_another_machine_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / f"{scratch.PREFIX}tune-someones").mkdir()
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    with another_owner(folder) as (process, theirs):
        process.kill()
        process.wait()
    scratch.sweep()
    assert theirs.exists()
    assert len(list(folder.iterdir())) == 2


def test_what_is_linked_to_stays(folder: Path) -> None:
    with another_owner(folder) as (process, theirs):
        process.kill()
        process.wait()
    moved = theirs.rename(folder / "moved")
    theirs.symlink_to(moved)
    scratch.sweep()
    scratch.remove(theirs)
    assert (moved / "deep" / "file").exists()


def test_a_mark_of_another_user_says_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_owner(folder) as (process, theirs):
        process.kill()
        process.wait()
    own = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: own + 1)
    scratch.sweep()
    assert theirs.exists()


def test_a_folder_that_is_kept_is_nobodys(folder: Path) -> None:
    with another_owner(folder) as (process, theirs):
        scratch.keep(theirs)
        process.kill()
        process.wait()
    scratch.sweep()
    assert scratch.is_kept(theirs)


def test_a_process_that_is_about_to_end_removes_its_temporary_folders_alone(folder: Path) -> None:
    session = folder / "session"
    session.mkdir()
    scratch.own(session)
    scratch.make("one")
    scratch.make("other")
    scratch.remove_temporary()
    assert list(folder.iterdir()) == [session]
    scratch.remove(session)
