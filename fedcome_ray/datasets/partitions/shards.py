"""Pieces of the examples sorted by class, as the MNIST of FedAvg has them."""

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.errors import DataError
from fedcome_ray.hyperparameters import Hyperparameters


class SortedShards(Hyperparameters):
    """Examples are sorted by class, cut into equal pieces, and the pieces dealt at random.

    McMahan et al., 2017. A piece may hold the end of one class and the start of the next.
    """

    name: Literal["shards"] = "shards"
    per_client: PositiveInt = 2
    """How many pieces a client gets."""


def deal(config: SortedShards, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
    """Deal pieces of the examples sorted by class."""
    num_pieces = num_clients * config.per_client
    if len(labels) < num_pieces:
        raise DataError(
            f"data.partition.per_client: {num_clients} clients of {config.per_client} pieces "
            f"cannot share {len(labels)} examples"
        )
    pieces = np.array_split(np.argsort(labels, kind="stable"), num_pieces)
    rng = np.random.default_rng(seed)
    dealt = rng.permutation(num_pieces).reshape(num_clients, config.per_client)
    return [np.concatenate([pieces[piece] for piece in own]) for own in dealt]
