"""Random proportions of each class."""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.hyperparameters import Hyperparameters


class Dirichlet(Hyperparameters):
    """Each class is shared out in proportions drawn from Dirichlet(alpha)."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5
    """The smaller, the more clients differ in their classes and sizes."""


def deal(config: Dirichlet, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
    """Cut each class at random proportions; nobody is left without examples."""
    rng = np.random.default_rng(seed)
    pieces: list[list[Indices]] = [[] for _ in range(num_clients)]
    for label in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(num_clients, config.alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            pieces[client].append(part)
    clients = [np.concatenate(parts) for parts in pieces]
    for client in [client for client, own in enumerate(clients) if len(own) == 0]:
        richest = max(range(num_clients), key=lambda other: len(clients[other]))
        clients[client], clients[richest] = clients[richest][:1], clients[richest][1:]
    return clients
