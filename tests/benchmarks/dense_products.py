"""The matrix products of dense models' local training and nothing else, written for Numba."""

import numpy as np

from fedcome_ray.models.dense_descent import (
    ERRORS,
    STRIDE,
    TRANSPOSED,
    UNITS,
    VALUES,
    WEIGHTS,
    _level,
)
from fedcome_ray.numerics.tiles import LANES, Floats, Integers, add_product, set_product, starting


def multiply(levels: Integers, last_level: int, memory: Floats, size: int, num_steps: int) -> None:
    """Those of so many steps with batches of this size; a client's numbers are in the memory."""
    one, nothing = np.float32(1), np.float32(0)
    for _ in range(num_steps):
        for number in range(1, last_level + 1):
            below, level = _level(levels, number - 1), _level(levels, number)
            rows = below[UNITS] + 1
            set_product(
                size, -(-level[UNITS] // LANES),
                starting(memory, level[VALUES]), level[STRIDE], LANES, memory, nothing, one,
                starting(memory, below[VALUES]), below[STRIDE], 1,
                starting(memory, level[WEIGHTS]), LANES, rows * LANES, rows, levels, 0,
            )  # fmt: skip
        for number in range(last_level, 0, -1):
            below, level = _level(levels, number - 1), _level(levels, number)
            rows = below[UNITS] + 1
            if number > 1:
                set_product(
                    size, -(-below[UNITS] // LANES),
                    starting(memory, below[ERRORS]), below[STRIDE], LANES, memory, nothing, one,
                    starting(memory, level[ERRORS]), level[STRIDE], 1,
                    starting(memory, level[TRANSPOSED]), LANES, level[UNITS] * LANES, level[UNITS],
                    levels, 0,
                )  # fmt: skip
            add_product(
                rows, -(-level[UNITS] // LANES),
                starting(memory, level[WEIGHTS]), LANES, rows * LANES,
                memory, np.float32(0.999), np.float32(-1e-6),
                starting(memory, below[VALUES]), 1, below[STRIDE],
                starting(memory, level[ERRORS]), level[STRIDE], LANES, size, levels, 0,
            )  # fmt: skip
