"""Checks of arrays that come from outside; each complaint names the file and the array."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.errors import DataError


def check_lengths(path: Path, **arrays: NDArray[Any]) -> None:
    """One row each for the same examples."""
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
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
