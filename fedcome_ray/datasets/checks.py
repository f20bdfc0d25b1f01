"""Checks of arrays that come from outside; each complaint names the file and the array."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.errors import DataError
from fedcome_ray.numerics import memory


def path_of(text: str) -> Path:
    """A path as a user writes it, also behind a colon, where the shell leaves a `~` alone."""
    return Path(os.path.expanduser(text))  # noqa: PTH111, which fails if there is no such home


def check_is_file(path: Path) -> None:
    """Refuse what is not a regular file: a pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # a name with a zero byte
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise DataError(f"cannot read {path}: it is {kind}, not a file")


def check_fits_memory(path: Path, num_bytes: int) -> None:
    """Refuse what cannot be held, before most of it has been read."""
    limit = memory.total_bytes()
    if num_bytes > limit:
        raise DataError(
            f"{path} holds {num_bytes / 1e9:,.1f} GB, more than this machine's memory of "
            f"{limit / 1e9:,.1f} GB; take a part of it"
        )


def check_lengths(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """One row each for the same examples."""
    lengths = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"{path}: these arrays must be equally long and not empty, got {found}")


def check_numbers(path: Path, name: str, numbers: NDArray[Any], limit: int) -> NDArray[np.int64]:
    """Labels or client numbers: integers from 0 to `limit` - 1."""
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise DataError(
            f"{path}: {name} must be one row of integers, got {numbers.dtype} of {numbers.shape}"
        )
    outside = np.flatnonzero((numbers < 0) | (numbers >= limit))
    if len(outside):
        raise DataError(
            f"{path}: {name} must be from 0 to {limit - 1}, "
            f"got {numbers[outside[0]]} at position {outside[0]}"
        )
    return numbers.astype(np.int64)


def check_clients(path: Path, name: str, clients: NDArray[np.int64], num_clients: int) -> None:
    """Everybody from 0 to `num_clients` - 1 has examples."""
    without = np.flatnonzero(np.bincount(clients, minlength=num_clients) == 0)
    if len(without):
        raise DataError(
            f"{path}: {name} has no examples of client {without[0]} "
            f"({len(without)} of {num_clients} clients are without); "
            f"number clients from 0 without gaps and give each training and test examples"
        )


def damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is damaged ({reason}); delete it and get it again")
