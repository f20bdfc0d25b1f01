"""What samplers remember of clients' last updates: short vectors that keep their products.

Clients that never took part together can be compared by them, which the updates themselves, as long
as the model and as many as clients, would be too large for.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray.errors import ConfigError
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.randomness import Stream, generator

WIDTH = 1024
"""Numbers in a sketch: cosines are known to about 1 / sqrt(WIDTH), 3 %."""
LARGEST_POPULATION = 2000
"""Beyond, comparing all pairs of clients takes seconds a round."""
_AT_A_TIME = 16 * WIDTH


class Sketches(NamedTuple):
    rows: NDArray[np.float32]  # [num_clients, WIDTH], zero for clients not seen yet
    is_seen: NDArray[np.bool_]  # [num_clients]


def nobodys(num_clients: int) -> Sketches:
    """Before the first round."""
    if num_clients > LARGEST_POPULATION:
        raise ConfigError(
            f"sampler.name: this sampler compares all pairs of clients, at most "
            f"{LARGEST_POPULATION:,} of them, got {num_clients:,}"
        )
    return Sketches(np.zeros((num_clients, WIDTH), np.float32), np.zeros(num_clients, np.bool_))


def learnt(sketches: Sketches, cohort: Cohort, report: Report) -> Sketches:
    """With the cohort's updates in the place of their earlier ones."""
    rows, is_seen = sketches.rows.copy(), sketches.is_seen.copy()
    rows[list(cohort)] = sketch(report.update)
    is_seen[list(cohort)] = True
    return Sketches(rows, is_seen)


def sketch(updates: Tensor) -> NDArray[np.float32]:
    """Every update as the sums of its coordinates with random signs, each in one of WIDTH places.

    The signs are the same for all updates of a length, so that products of sketches are, on
    average over signs, those of the updates (Charikar et al., Finding Frequent Items in Data
    Streams, 2002).
    """
    total = updates.new_zeros((len(updates), WIDTH), dtype=torch.float64)
    signs = _signs(updates.shape[1]).to(updates.device)
    for start in range(0, updates.shape[1], _AT_A_TIME):
        part = updates[:, start : start + _AT_A_TIME].double() * signs[start : start + _AT_A_TIME]
        missing = -part.shape[1] % WIDTH
        total += torch.nn.functional.pad(part, (0, missing)).unflatten(1, (-1, WIDTH)).sum(1)
    return total.float().numpy(force=True)


@lru_cache(maxsize=4)
def _signs(dim: int) -> Tensor:
    return torch.from_numpy(2.0 * generator(0, Stream.SKETCH).integers(0, 2, dim) - 1.0)
