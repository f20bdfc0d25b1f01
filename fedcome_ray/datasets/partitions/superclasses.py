"""CIFAR-100's superclasses: five clients share the five classes of each."""

from typing import Literal

import numpy as np

from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.hyperparameters import Hyperparameters


class Ring2(Hyperparameters):
    """The five clients of a superclass hold halves of two of its classes, in a ring."""

    name: Literal["ring2"] = "ring2"


class Iid5(Hyperparameters):
    """Each superclass is dealt at random to five clients."""

    name: Literal["iid5"] = "iid5"


# The superclass of each fine class of CIFAR-100, both in the dataset's own (alphabetical) order.
CIFAR100_SUPERCLASS = np.array(
    [
        *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11),
        *(6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5),
        *(5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17),
        *(10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13),
        *(16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
    ]
)
CLIENTS_PER_SUPERCLASS = 5
NUM_CLIENTS = CLIENTS_PER_SUPERCLASS * int(CIFAR100_SUPERCLASS.max() + 1)


def deal_ring2(_config: Ring2, labels: Labels, _num_clients: int, _seed: int) -> list[Indices]:
    """Client j of a superclass: the last half of its class j and the first half of class j + 1."""
    clients = []
    for members in _superclasses(labels):
        half_a_class = len(members) // (2 * CLIENTS_PER_SUPERCLASS)
        clients += np.array_split(np.roll(members, -half_a_class), CLIENTS_PER_SUPERCLASS)
    return clients


def deal_iid5(_config: Iid5, labels: Labels, _num_clients: int, seed: int) -> list[Indices]:
    """Five clients for each superclass, each with a random fifth of its examples."""
    rng = np.random.default_rng(seed)
    clients = []
    for members in _superclasses(labels):
        clients += np.array_split(rng.permutation(members), CLIENTS_PER_SUPERCLASS)
    return clients


def _superclasses(labels: Labels) -> list[Indices]:
    """The examples of each superclass, class by class, in the dataset's order."""
    by_class = np.argsort(labels, kind="stable")
    superclass = CIFAR100_SUPERCLASS[labels[by_class]]
    return [by_class[superclass == one] for one in range(CIFAR100_SUPERCLASS.max() + 1)]
