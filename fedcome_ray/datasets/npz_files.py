"""NumPy's `.npz` files: read with clear errors, mapped into memory, written atomically."""

import lzma
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

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
    RuntimeError,  # an unknown compression, an encrypted member
    MemoryError,  # a header that speaks of terabytes
)
"""What reading an archive raises if bytes of it are wrong."""


def read(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, AnyArray]:
    """The named arrays of a file; those that are optional and absent are left out."""
    with _clear_errors(path), zipfile.ZipFile(path) as archive:
        members = _check_members(path, archive, names)
        wanted = [*names, *(name for name in optional if name in members)]
        return {name: _read_member(archive, name) for name in wanted}


def check_has(path: Path, names: Iterable[str]) -> None:
    """Refuse a file that cannot be opened or lacks an array, without reading any."""
    with _clear_errors(path), zipfile.ZipFile(path) as archive:
        _check_members(path, archive, names)


def _check_members(path: Path, archive: zipfile.ZipFile, names: Iterable[str]) -> set[str]:
    members = {member.removesuffix(".npy") for member in archive.namelist()}
    missing = sorted(set(names) - members)
    if missing:
        raise DataError(
            f"{path} lacks the arrays {', '.join(missing)}; "
            f"it has {', '.join(sorted(members)) or 'none'}"
        )
    return members


def _read_member(archive: zipfile.ZipFile, name: str) -> AnyArray:
    with archive.open(f"{name}.npy") as member:
        array: AnyArray = np.lib.format.read_array(member, allow_pickle=False)
        member.read()  # to the end, where the checksum is compared
        return array


def shape(path: Path, name: str) -> tuple[int, ...]:
    """The shape of an array, from its header alone."""
    with _clear_errors(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        return _header(file)[0]


def memory_map(path: Path, name: str) -> AnyArray:
    """An array of a file that `write` made, without reading it."""
    with _clear_errors(path), zipfile.ZipFile(path) as archive, path.open("rb") as file:
        start = archive.getinfo(f"{name}.npy").header_offset
        # A member is a header of 30 bytes, its name, an extra field, and then the array's file.
        file.seek(start + 26)
        name_length, extra_length = struct.unpack("<HH", file.read(4))
        file.seek(start + 30 + name_length + extra_length)
        array_shape, dtype = _header(file)
        return np.memmap(path, dtype=dtype, mode="r", offset=file.tell(), shape=array_shape)


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
    with _clear_errors(path), zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    array_shape, _, dtype = read_header(file)
    return array_shape, dtype


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except DAMAGE as error:
        raise DataError(
            f"{path} is damaged or not an .npz file of plain arrays ({error}); make it again"
        ) from None
