"""What shards are sent."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.runtime.objects import Message


class Sent(NamedTuple):
    params: Tensor
    temperature: float


def test_a_message_may_have_numbers_beside_its_tensors() -> None:
    params, temperature = Message(Sent(torch.ones(3), 0.5)).to_call_with
    assert np.array_equal(params, np.ones(3))
    assert temperature == 0.5
