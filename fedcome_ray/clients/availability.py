"""Who is there when a round begins, and who gets through with its steps.

Drawn for each round and client, from a stream of its own: who else is asked, and what clients do in
other rounds, does not matter.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from fedcome_ray.datasets.population import Indices
from fedcome_ray.experiments.trial import Availability
from fedcome_ray.methods.method import Cohort
from fedcome_ray.numerics.randomness import Stream, client_keys, uniforms


def present(chances: Availability, seed: int, round_index: int, asked: Cohort) -> Cohort:
    """Those of the clients that are there."""
    if chances.rate == 1.0:  # everybody, without a draw
        return asked
    clients = np.array(asked, np.int64)
    is_there = _drawn(seed, round_index, clients)[0] < chances.rate
    return tuple(clients[is_there].tolist())


def shares(
    chances: Availability, seed: int, round_index: int, clients: Indices
) -> NDArray[np.float64]:
    """The part of its local steps that each client takes: 1, or less for stragglers."""
    if chances.straggler_rate == 0.0:
        return np.ones(len(clients))
    _, chance, share = _drawn(seed, round_index, clients)
    less = chances.least_share + (1 - chances.least_share) * share
    return np.where(chance < chances.straggler_rate, less, 1.0)


def steps_taken(share: NDArray[np.float64], num_steps: Indices) -> Indices:
    """Of so many steps; one at least, since a client without an update does not take part."""
    return np.maximum((share * num_steps).astype(np.int64), 1)


def _drawn(seed: int, round_index: int, clients: Indices) -> NDArray[np.float64]:
    """Three numbers from 0 to below 1 for each client, `[3, clients]`."""
    keys = client_keys(seed, Stream.AVAILABILITY, round_index, torch.from_numpy(clients))
    return uniforms(keys, 3).T.numpy()
