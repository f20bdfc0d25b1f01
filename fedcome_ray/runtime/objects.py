"""What goes to other processes, and Ray's object store, which takes some of it.

What does not fit into memory goes to the disk, until that is full.
"""

import mmap
import os
import pickle  # nosec B403
import weakref
from functools import cached_property
from itertools import count
from typing import Any

import ray
from ray import cloudpickle

from fedcome_ray.errors import StorageError
from fedcome_ray.numerics.arrays import to_arrays
from fedcome_ray.runtime import MOST_WITH_A_CALL

_NUMBERS = count()
NO_ROOM = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)


class Memory:
    """Memory that processes share: it has no name, and is gone with the last of them."""

    def __init__(self, num_bytes: int) -> None:
        self.number = next(_NUMBERS)
        self.file = os.memfd_create("fedcome_ray")
        weakref.finalize(self, os.close, self.file)
        os.ftruncate(self.file, num_bytes)
        self.bytes = mmap.mmap(self.file, num_bytes)


class Message:
    """What all shards are sent, in the form that each way needs, made at most once."""

    def __init__(self, received: Any) -> None:
        self._arrays = to_arrays(received)

    @cached_property
    def to_call_with(self) -> Any:
        """A few numbers as they are, many by reference."""
        num_bytes = sum(getattr(field, "nbytes", 0) for field in self._arrays)  # or a number
        return self._arrays if num_bytes <= MOST_WITH_A_CALL else put(self._arrays)

    @cached_property
    def packed(self) -> bytes:
        return pack(self._arrays)

    @cached_property
    def memory(self) -> Memory | None:
        """Where those read what is packed that would wait for each other else; None: nowhere."""
        if len(self.packed) <= MOST_WITH_A_CALL:
            return None
        memory = Memory(len(self.packed))
        memory.bytes[:] = self.packed
        return memory


def pack(value: Any) -> bytes:
    """Also of classes that only a plugin knows."""
    packed: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return packed


def unpack(packed: bytes | mmap.mmap) -> Any:
    """Of a process of ours, as Ray does with what its processes send each other."""
    return pickle.loads(packed)  # nosec B301


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
