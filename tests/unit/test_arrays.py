"""Between tensors and arrays that processes share."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcome_ray.arrays import shared_tensor, to_arrays, to_tensors


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


def test_nothing_is_copied() -> None:
    array = np.zeros(3)
    tensor = to_tensors(State(array, 0)).params
    array[0] = 7
    assert tensor[0] == 7


def test_read_only_memory_is_taken_without_a_warning() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shared_tensor(array).tolist() == [0, 0, 0]
