"""Between tensors and arrays that processes share."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

StateT = TypeVar("StateT")
Arrays = dict[str, NDArray[Any]]
"""Arrays by name, as checkpoints and processes exchange them."""

ALIGNMENT = 64
"""Bytes: every tensor that PyTorch allocates on a CPU begins at a multiple."""


def shared_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor on the memory of an array that may be shared and read-only: never write to it.

    Ray hands out views of its object store. PyTorch cannot express that they are read-only; an
    in-place operation would silently change the data of every process, hence its warning.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it, that begins where PyTorch's own tensors begin.

    What comes from other processes and from files may begin anywhere, and products of a matrix and
    a vector may be summed in an order that depends on it.
    """
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def to_arrays(state: StateT) -> StateT:
    """A named tuple of tensors as the same named tuple of NumPy arrays, which travel cheaply."""
    return _map(state, lambda item: item.numpy(force=True) if isinstance(item, Tensor) else item)


def to_tensors(state: StateT) -> StateT:
    """The inverse of `to_arrays`; the tensors may be shared memory and must not be written to."""
    return _map(state, lambda item: received_tensor(item) if isinstance(item, np.ndarray) else item)


def received_tensor(array: NDArray[Any]) -> Tensor:
    """A tensor to compute with, from an array that another process sent: never write to it."""
    return aligned(shared_tensor(array))


def _map(state: StateT, change: Callable[[Any], Any]) -> StateT:
    return type(state)(*(change(item) for item in state))  # type: ignore[attr-defined]
