"""A place in object storage, by its address: `s3://bucket/prefix` and whatever else fsspec knows.

A write is whole or not at all, as object stores have it. Each process connects by itself, with the
credentials and the endpoint of its own environment: an address has no secrets, and is all that is
sent to others.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedcome_ray.errors import AwayError, UserError, cut

AnyT = TypeVar("AnyT")

PATIENCE_SECONDS = 120.0
"""How long is waited for a storage that does not answer, where nothing can be done without it."""
PAUSE_SECONDS = 2.0  # between attempts
_FRESH: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
_S3: dict[str, Any] = {
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 1}}
}
_OPTIONS: Mapping[str, dict[str, Any]] = {"s3": _S3, "s3a": _S3, "file": {"auto_mkdir": True}}
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of this package, by scheme


def is_address(text: str) -> bool:
    """Whether it names a storage, and not a folder."""
    return "://" in text


@dataclass(frozen=True)
class Remote:
    """All names in it are relative to its address. What fails raises AwayError."""

    address: str

    def at(self, name: str) -> "Remote":
        """A place in it, by the same connection: to connect takes half a second."""
        place = Remote(f"{self.address}/{name}")
        place.__dict__["_opened"] = self._files, f"{self._root}/{name}"
        return place

    def check(self, *, writable: bool = True) -> None:
        """Refuse an address that cannot be used, before anything long starts."""
        try:
            if writable:
                self.write(".probe", b"")
                self.delete([".probe"])
            else:
                self.marks()
        except AwayError as error:
            raise UserError(f"--output: cannot use {error}") from None

    def marks(self, under: str = "") -> dict[str, str]:
        """What there is, by name, each with a mark that changes with its content."""
        root = f"{self._root}/{under}" if under else self._root
        with self._said():
            found = self._files.find(root, detail=True)
        start = len(self._root) + 1
        return {path[start:]: _mark(info) for path, info in found.items()}

    def get(self, files: Mapping[str, Path]) -> None:
        """Read objects into files, several at a time."""
        if files:
            for path in files.values():
                path.parent.mkdir(parents=True, exist_ok=True)
            with self._said():
                self._files.get([self._path(name) for name in files], [*map(str, files.values())])

    def put(self, files: Mapping[str, Path]) -> None:
        """Make files objects, several at a time."""
        if files:
            with self._said():
                self._files.put([*map(str, files.values())], [self._path(name) for name in files])

    def read(self, name: str) -> bytes | None:
        """None if it is not there."""
        try:
            with self._said():
                content: bytes = self._files.cat_file(self._path(name))
        except AwayError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._said():
            self._files.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write it unless it is there; whether this content is there now.

        That is looked at, since not all stores say in the same way that something is there, and
        an attempt whose answer was lost may have been repeated.
        """
        try:
            with self._said():
                self._files.pipe_file(self._path(name), content, mode="create")
        except AwayError:
            if (found := self.read(name)) is None:
                raise
            return found == content
        return self.read(name) == content

    def delete(self, names: Iterable[str]) -> None:
        """Whether or not they are there."""
        for name in names:
            with self._said():
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @property
    def _files(self) -> Any:
        return self._opened[0]

    @property
    def _root(self) -> str:
        root: str = self._opened[1]
        return root.rstrip("/")

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The file system of fsspec, and where in it this is."""
        from fsspec.core import url_to_fs  # slow to import, as what it imports

        scheme = self.address.partition("://")[0]
        try:
            files, root = url_to_fs(self.address, **_FRESH, **_OPTIONS.get(scheme, {}))
        except ImportError as error:
            how = f"pip install 'fedcome-ray[{_EXTRAS[scheme]}]'" if scheme in _EXTRAS else error
            raise UserError(
                f"--output: `{self.address}` needs a library that is not installed: {how}"
            ) from None
        except (ValueError, TypeError) as error:
            raise UserError(f"--output: cannot use `{self.address}`: {error}") from None
        return files, root

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}  # others connect by themselves

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Whatever the libraries below raise, as one line that names the storage."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            why = (str(error) or repr(error)).strip().splitlines()[0]
            raise AwayError(f"`{self.address}`: {cut(why)}") from error


def patiently(action: Callable[[], AnyT]) -> AnyT:
    """Try again for a while what fails because a storage is away."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return action()
        except AwayError:
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE_SECONDS)


def _mark(info: Mapping[str, Any]) -> str:
    """What file systems call it differs; with none of these, only the size tells."""
    kinds = ("ETag", "etag", "generation", "md5Hash", "mtime")
    known = next((info[kind] for kind in kinds if kind in info), "")
    return f"{known} {info.get('size')}"
