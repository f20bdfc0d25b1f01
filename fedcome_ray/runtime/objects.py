"""Ray's object store, which takes what does not fit into memory to the disk, until that is full."""

from typing import Any

import ray

from fedcome_ray.errors import StorageError

NO_ROOM = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)


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
