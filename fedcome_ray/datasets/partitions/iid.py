"""Random shares, alike for everybody."""

from typing import Literal

import numpy as np

from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.hyperparameters import Hyperparameters


class Iid(Hyperparameters):
    """Examples are dealt at random."""

    name: Literal["iid"] = "iid"


def deal(_config: Iid, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
    """Deal all examples, equally many to each client."""
    return np.array_split(np.random.default_rng(seed).permutation(len(labels)), num_clients)
