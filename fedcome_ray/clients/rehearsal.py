"""Clients with random examples, to try and to time local training without any dataset."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import FLOAT32, Examples, Population, split_in_order


def random_population(
    sizes: Sequence[int],
    feature_shape: tuple[int, ...],
    num_classes: int,
    feature_dtype: "np.dtype[Any]" = FLOAT32,
) -> Population:
    """Clients of these sizes, the same examples for training and testing."""
    rng = np.random.default_rng(0)
    shape = (sum(sizes), *feature_shape)
    if feature_dtype.kind == "i":
        x = np.zeros(shape, feature_dtype)  # a token that every model knows
    else:
        x = rng.random(shape, dtype=np.float32) - np.float32(0.5)
    examples = Examples(x, rng.integers(num_classes, size=len(x)))
    side = split_in_order(examples, np.array(sizes))
    return Population(side, side, num_classes)


def first_message(shard: Shard, num_clients: int) -> Any:
    """What clients receive in the first round."""
    method = shard.method
    return method.broadcast(method.init_server(shard.model.init(0), num_clients))
