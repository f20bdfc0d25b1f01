"""Ray's object store, which takes what does not fit into memory to the disk, until that is full."""

from collections.abc import Sequence
from typing import Any

import ray

from fedcome_ray.errors import StorageError
from fedcome_ray.runtime import MOST_WITH_A_CALL

NO_ROOM = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)


def message(arrays: Sequence[Any]) -> Any:
    """Arrays as calls are given them: few as they are, many by reference."""
    num_bytes = sum(array.nbytes for array in arrays)
    return arrays if num_bytes <= MOST_WITH_A_CALL else put(arrays)


def put(value: Any) -> Any:
    """A reference to the value, in the object store."""
    try:
        return ray.put(value)
    except NO_ROOM as error:
        raise no_room() from error


def no_room() -> StorageError:
    return StorageError(
        "Ray's object store is full, and so is the disk that takes the rest: make room in /tmp, "
        "or name another folder in RAY_TMPDIR; the same command goes on"
    )
