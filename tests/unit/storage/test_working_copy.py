"""A folder that goes with a place in a storage; the storage is a folder here, too."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from fedcome_ray.storage.remote import Remote
from fedcome_ray.storage.working_copy import WorkingCopy


class Watched(Remote):
    """Notes what it is asked for."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.__dict__["notes"] = []

    def get(self, files: Mapping[str, Path]) -> None:
        self._note("get", files)
        super().get(files)

    def put(self, files: Mapping[str, Path]) -> None:
        self._note("put", sorted(files))
        super().put(files)

    def delete(self, names: Iterable[str]) -> None:
        self._note("delete", names)
        super().delete(names)

    def asked(self) -> list[str]:
        """Since the last time."""
        notes = [*self.__dict__["notes"]]
        self.__dict__["notes"].clear()
        return notes

    def _note(self, what: str, names: Iterable[str]) -> None:
        self.__dict__["notes"] += [f"{what} {name}" for name in names]


@pytest.fixture
def remote(tmp_path: Path) -> Watched:
    return Watched((tmp_path / "there").as_uri())


def fill(folder: Path, **contents: str) -> None:
    for name, text in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_what_is_pushed_here_is_pulled_there(remote: Watched, tmp_path: Path) -> None:
    fill(tmp_path / "one", a="1", sub__b="2")
    WorkingCopy(remote, tmp_path / "one").push()
    assert WorkingCopy(remote, tmp_path / "two").pull() == ["a", "sub/b"]
    assert contents(tmp_path / "two") == {"a": "1", "sub/b": "2"}


def test_only_what_changed_is_sent(remote: Watched, tmp_path: Path) -> None:
    copy = WorkingCopy(remote, tmp_path / "one")
    fill(copy.folder, a="1", b="2")
    copy.push()
    assert remote.asked() == ["put a", "put b"]
    copy.push()
    assert remote.asked() == []
    fill(copy.folder, b="another")
    (copy.folder / "a").unlink()
    copy.push()
    assert remote.asked() == ["put b", "delete a"]


def test_a_file_in_place_of_one_of_the_same_size_and_moment_is_sent(
    remote: Watched, tmp_path: Path
) -> None:
    fill(tmp_path / "one", a="1", new="2")
    for path in (tmp_path / "one").iterdir():
        os.utime(path, ns=(0, 0))
    copy = WorkingCopy(remote, tmp_path / "one")
    copy.push()
    (tmp_path / "one" / "new").replace(tmp_path / "one" / "a")
    copy.push()
    assert remote.read("a") == b"2"


def test_only_what_changed_is_brought(remote: Watched, tmp_path: Path) -> None:
    fill(tmp_path / "one", a="1", b="2")
    writer = WorkingCopy(remote, tmp_path / "one")
    writer.push()
    WorkingCopy(remote, tmp_path / "two").pull()
    remote.asked()
    WorkingCopy(remote, tmp_path / "two").pull()
    assert remote.asked() == []
    fill(tmp_path / "one", a="another")
    writer.push()
    remote.asked()
    reader = WorkingCopy(remote, tmp_path / "two")
    reader.pull()
    assert remote.asked() == ["get a"]
    reader.push()
    assert remote.asked() == []  # it came from there


def test_the_storage_is_the_truth(remote: Watched, tmp_path: Path) -> None:
    fill(tmp_path / "one", a="1", b="2", c="3")
    WorkingCopy(remote, tmp_path / "one").push()
    other = WorkingCopy(remote, tmp_path / "two")
    fill(other.folder, a="mine", only_here="x", c="mine")
    other.pull(is_wanted=lambda name: name != "c")
    assert contents(other.folder) == {"a": "1", "b": "2", "c": "mine"}


def test_only_what_is_below_a_folder_is_looked_at(remote: Watched, tmp_path: Path) -> None:
    fill(tmp_path / "one", x__a="1", y__b="2")
    copy = WorkingCopy(remote, tmp_path / "one")
    copy.push("x")
    assert remote.asked() == ["put x/a"]
    copy.push()
    other = WorkingCopy(remote, tmp_path / "two")
    fill(other.folder, x__own="3")
    assert other.pull("y") == ["y/b"]
    assert contents(other.folder) == {"y/b": "2", "x/own": "3"}


def test_some_names_are_last_and_what_is_gone_goes_after_them(
    remote: Watched, tmp_path: Path
) -> None:
    copy = WorkingCopy(remote, tmp_path / "one", last=("state", "end"))
    fill(copy.folder, end="1", state="1", x="1", zz="1")
    copy.push()
    assert remote.asked() == ["put x", "put zz", "put state", "put end"]
    (copy.folder / "state").unlink()
    fill(copy.folder, end="another", zz="another")
    copy.push()
    assert remote.asked() == ["put zz", "put end", "delete state"]


def test_hidden_files_stay(remote: Watched, tmp_path: Path) -> None:
    copy = WorkingCopy(remote, tmp_path / "one")
    fill(copy.folder, a="1")
    (copy.folder / ".lock").touch()
    copy.push()
    assert remote.marks().keys() == {"a"}
    copy.pull()
    assert (copy.folder / ".lock").exists()


def test_nothing_is_sent_if_that_is_not_allowed(remote: Watched, tmp_path: Path) -> None:
    def refuse() -> None:
        raise RuntimeError("not yours")

    copy = WorkingCopy(remote, tmp_path / "one", check=refuse)
    fill(copy.folder, a="1")
    with pytest.raises(RuntimeError, match="not yours"):
        copy.push()
    assert remote.marks() == {}
