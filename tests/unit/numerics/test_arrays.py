"""Between tensors and arrays that processes share."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcome_ray.numerics.arrays import shared_tensor, to_arrays, to_tensors


class State(NamedTuple):
    params: Any
    count: int


def test_a_state_goes_there_and_back() -> None:
    there = to_arrays(State(torch.tensor([1.0, 2.0]), 3))
    assert isinstance(there.params, np.ndarray)
    back = to_tensors(there)
    assert isinstance(back, State)
    assert back.params.tolist() == [1, 2]
    assert back.count == 3


def array_at(offset: int) -> Any:
    """An array that begins this many numbers after a round address."""
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data % 64 // 4 + offset
    return memory[start : start + 3]


def test_what_begins_at_a_round_address_is_not_copied() -> None:
    array = array_at(0)
    tensor = to_tensors(State(array, 0)).params
    array[0] = 7
    assert tensor[0] == 7


def test_what_begins_anywhere_is_moved_to_a_round_address() -> None:
    tensor = to_tensors(State(array_at(1), 0)).params
    assert tensor.data_ptr() % 64 == 0
    assert tensor.tolist() == [0, 0, 0]


def test_read_only_memory_is_taken_without_a_warning() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shared_tensor(array).tolist() == [0, 0, 0]
