"""Random numbers that depend on what they are for, never on who asks first.

Every draw is a pure function of `(seed, stream, round, client)`, so a client gets the same
batches and the same dropout masks in whatever block, shard or order it is trained.

Server-side draws use a NumPy generator. Client-side draws come from a counter-based generator
(the SplitMix64 finaliser over `key + counter`), because it is computed for a whole block of
clients at once and on any device, where one generator object per client would be a Python loop.
"""

from enum import IntEnum, unique

import numpy as np
import torch
from torch import Tensor

_GOLDEN_GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as a signed 64-bit integer, like the next two
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_FOLD = 0x632BE5AB


@unique
class Stream(IntEnum):
    """What random numbers are for; two streams of one seed are independent."""

    INIT = 0
    BATCHES = 1
    SAMPLER = 2
    DROPOUT = 3
    DATA = 4
    SEARCH = 5
    AVAILABILITY = 6
    PERSONAL_BATCHES = 7
    PERSONAL_DROPOUT = 8
    PROJECTION = 10
    SKETCH = 11


def generator(seed: int, stream: Stream, *path: int) -> np.random.Generator:
    """A NumPy generator of its own for each `(seed, stream, *path)`."""
    return np.random.default_rng([seed, stream, *path])


def client_keys(seed: int, stream: Stream, round_index: int, clients: Tensor) -> Tensor:
    """One 64-bit key for each client of a round, `[clients]` int64."""
    base = int(round_key(seed, stream, round_index).astype(np.int64))
    return _mix(_mix(clients * _GOLDEN_GAMMA) + base)


def round_key(seed: int, stream: Stream, round_index: int) -> np.uint64:
    """What the keys of all clients of a round are made from."""
    sequence = np.random.SeedSequence([seed, stream, round_index])
    return np.uint64(sequence.generate_state(1, np.uint64)[0])


def fold(keys: Tensor, number: int | Tensor) -> Tensor:
    """Keys of a sub-stream, for instance of one epoch or of one step.

    A number is mixed here and goes to the keys' device as an argument, not as a tensor: a copy to
    a GPU would wait for all the work before it.
    """
    if isinstance(number, int):
        return _mix(keys ^ _mix_number((number + 1) * _FOLD))
    return _mix(keys ^ _mix((number + 1) * _FOLD))


def random_bits(keys: Tensor, count: int) -> Tensor:
    """`count` random 64-bit integers for each key, `[*keys, count]` int64."""
    counters = torch.arange(1, count + 1, device=keys.device) * _GOLDEN_GAMMA
    return _mix(keys.unsqueeze(-1) + counters)


def uniforms(keys: Tensor, count: int) -> Tensor:
    """`count` random numbers from 0 to below 1 for each key, `[*keys, count]` float64."""
    return _shift_right(random_bits(keys, count), 11).double() * 2.0**-53


def dropout_mask(keys: Tensor, count: int, rate: float) -> Tensor:
    """Factors 0, with probability `rate`, or 1 / (1 - rate): `[*keys, count]` float32.

    Each takes 16 of the random bits, so the rate is rounded to a multiple of 1 / 65,536.
    """
    words = random_bits(keys, -(-count // 4)).view(torch.int16)[..., :count]
    is_kept = words >= round(rate * 2**16) - 2**15
    return is_kept.float().mul_(1 / (1 - rate))


def _mix(z: Tensor) -> Tensor:
    z = _shift_right(z, 30).bitwise_xor_(z).mul_(_MIX_1)
    z = _shift_right(z, 27).bitwise_xor_(z).mul_(_MIX_2)
    return _shift_right(z, 31).bitwise_xor_(z)


def _mix_number(number: int) -> int:
    """The same for one integer."""
    z = number % 2**64
    z = ((z >> 30) ^ z) * _MIX_1 % 2**64
    z = ((z >> 27) ^ z) * _MIX_2 % 2**64
    z = (z >> 31) ^ z
    return z - 2**64 if z >= 2**63 else z


def _shift_right(z: Tensor, places: int) -> Tensor:
    # torch shifts int64 arithmetically; the mask removes the copies of the sign bit.
    return (z >> places).bitwise_and_((1 << (64 - places)) - 1)
