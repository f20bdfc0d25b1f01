"""Checkpoints: nested states as named arrays in one file that is replaced atomically.

The file is in the safetensors format: reading one cannot execute code. A checksum of all that it
holds is noted in it: a damaged one is refused, and not continued from with wrong numbers.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from fedcome_ray.errors import StorageError
from fedcome_ray.numerics.arrays import Arrays, aligned

CHECKSUM = "checksum"
DAMAGE = (SafetensorError, OSError, UnicodeDecodeError)
"""What reading a damaged checkpoint raises."""


def flatten(state: Any, name: str) -> Arrays:
    """The leaves of nested named tuples of tensors, arrays and numbers, by dotted name."""
    if isinstance(state, tuple):
        fields = state._asdict().items()  # type: ignore[attr-defined]
        return {k: v for field, leaf in fields for k, v in flatten(leaf, f"{name}.{field}").items()}
    leaf = state.numpy(force=True) if isinstance(state, torch.Tensor) else np.asarray(state)
    return {name: np.ascontiguousarray(leaf).reshape(leaf.shape)}


def rebuild(template: Any, arrays: Arrays, name: str) -> Any:
    """The inverse of `flatten`; the template says the types, not the shapes."""
    if isinstance(template, tuple):
        fields = template._asdict().items()  # type: ignore[attr-defined]
        return type(template)(*(rebuild(leaf, arrays, f"{name}.{field}") for field, leaf in fields))
    array = arrays[name]
    if isinstance(template, torch.Tensor):
        return aligned(torch.from_numpy(array)).to(template.device)
    return array if isinstance(template, np.ndarray) else type(template)(array.item())


def write(path: Path, arrays: Arrays, notes: Mapping[str, str]) -> None:
    """Replace the file as a whole: a crash leaves the old one or the new one."""
    replace(path, saving(arrays, notes))


def saving(arrays: Arrays, notes: Mapping[str, str]) -> Callable[[Path], object]:
    """What writes a file with these arrays and notes."""
    noted = {**notes, CHECKSUM: _checksum(arrays, notes)}
    return lambda path: save_file(arrays, path, metadata=noted)


def read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays of a checkpoint and what was noted beside them."""
    with safe_open(path, framework="numpy") as file:
        notes: dict[str, str] = file.metadata() or {}
    arrays = load_file(path)
    if notes.pop(CHECKSUM, None) != _checksum(arrays, notes):
        raise SafetensorError("wrong checksum")
    return arrays, notes


def check(path: Path) -> None:
    """Raise what a damaged file does; one that notes no checksum, as those of others, is taken."""
    with safe_open(path, framework="numpy") as file:
        is_noted = CHECKSUM in (file.metadata() or {})
    if is_noted:
        read(path)


def _checksum(arrays: Arrays, notes: Mapping[str, str]) -> str:
    """Of names, types, shapes, contents and notes."""
    found = zlib.crc32(json.dumps(dict(notes), sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        found = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), found)
        found = zlib.crc32(np.ascontiguousarray(array).data, found)
    return f"{found:08x}"


def read_number(path: Path, name: str) -> int:
    """One number of a checkpoint, without reading the rest; it is noted, too, under its name."""
    with safe_open(path, framework="numpy") as file:
        number = file.get_tensor(name)
        noted = (file.metadata() or {}).get(name)
    if noted not in {None, str(number)}:
        raise SafetensorError(f"{name} is {number} and {noted}")
    return int(number)


def replace(path: Path, save: Callable[[Path], object], *, is_kept: bool = True) -> None:
    """Let `save` write a temporary file beside `path`, then put it in its place."""
    replace_all({path: save}, is_kept=is_kept)


def replace_all(saves: Mapping[Path, Callable[[Path], object]], *, is_kept: bool = True) -> None:
    """Replace several files, each as a whole.

    The disk is asked to keep them when all are written: it then does so at once. What need not
    outlast a power cut yet is left to `keep`.
    """
    temporaries = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in saves}
    try:
        for path, save in saves.items():
            with writing(path):
                save(temporaries[path])
        for path, temporary in temporaries.items() if is_kept else ():
            with writing(path):
                keep(temporary)
        for path, temporary in temporaries.items():
            with writing(path):
                temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            with suppress(OSError):  # what is wrong with the folder has been said
                temporary.unlink(missing_ok=True)


def keep(path: Path) -> None:
    """Ask the disk to: until it is asked, a power cut takes what was written of late."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which file could not be written, and what to do: the system only says why."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise StorageError(
            f"cannot write {path}: {why}; with that mended, the same command goes on"
        ) from error
