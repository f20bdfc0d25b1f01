"""NumPy's `.npz` files: read with clear errors, mapped into memory, written atomically."""

import lzma
import math
import os
import struct
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.checks import check_is_file
from fedcome_ray.errors import DataError

AnyArray = NDArray[Any]
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    KeyError,
    OverflowError,
    SyntaxError,  # this and the next: a header, which NumPy reads as Python
    tokenize.TokenError,
    RuntimeError,  # an unknown compression, an encrypted member
    MemoryError,
)
"""What reading an archive raises if bytes of it are wrong."""


class Header(NamedTuple):
    """What an array's file says before its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, AnyArray]:
    """The named arrays of a file; those that are optional and absent are left out."""
    with _open(path) as archive:
        wanted = _present(path, archive, names, optional)
        return {name: _read_member(archive, name) for name in wanted}


def headers(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Header]:
    """The shapes and types of the named arrays, as `read` has them, without reading any."""
    with _open(path) as archive:
        wanted = _present(path, archive, names, optional)
        return {name: _checked_header(archive, name) for name in wanted}


def _present(
    path: Path, archive: zipfile.ZipFile, names: Iterable[str], optional: Iterable[str]
) -> list[str]:
    """The named arrays, and of the optional ones those that are there."""
    members = {member.removesuffix(".npy") for member in archive.namelist()}
    missing = sorted(set(names) - members)
    if missing:
        raise DataError(
            f"{path} lacks the arrays {', '.join(missing)}; "
            f"it has {', '.join(sorted(members)) or 'none'}"
        )
    return [*names, *(name for name in optional if name in members)]


def _read_member(archive: zipfile.ZipFile, name: str) -> AnyArray:
    _checked_header(archive, name)
    with archive.open(f"{name}.npy") as member:
        array: AnyArray = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # to the end, where the checksum is compared
        return array


def _checked_header(archive: zipfile.ZipFile, name: str) -> Header:
    """An array's header, if it speaks of as many numbers as follow: it may say terabytes."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        header = _header(file)
        length = file.tell()
    if header.dtype.hasobject:
        raise ValueError(f"{name} has Python objects, which are not read")
    expected = length + math.prod(header.shape) * header.dtype.itemsize
    if min(header.shape, default=0) < 0 or member.file_size != expected:
        raise ValueError(
            f"{name} should be {header.dtype} of {header.shape} in {expected} bytes, "
            f"and has {member.file_size}"
        )
    return header


def memory_map(path: Path, name: str) -> AnyArray:
    """An array of a file that `write` made, without reading it."""
    with _open(path) as archive, path.open("rb") as file:
        start = archive.getinfo(f"{name}.npy").header_offset
        # A member is a header of 30 bytes, its name, an extra field, and then the array's file.
        file.seek(start + 26)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
        file.seek(start + 30 + name_length + extra_length)
        header = _header(file)
        return np.memmap(path, dtype=header.dtype, mode="r", offset=file.tell(), shape=header.shape)


def write(path: Path, arrays: Mapping[str, AnyArray]) -> None:
    """Write uncompressed; whoever reads at the same time finds the old file or the new one."""
    unfinished = path.with_name(f".{path.stem}-{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise DataError(f"cannot write {path}: {error.strerror}") from None


def check_sums(path: Path) -> None:
    """Read everything once and compare the checksums inside the file."""
    with _open(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")


def _header(file: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    return Header(shape, dtype)


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; what is wrong with it, also while it is open, is said in one line."""
    check_is_file(path)  # a pipe or a device would never end
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        raise DataError(
            f"{path} is damaged or not an .npz file of plain arrays ({error}); make it again"
        ) from None
