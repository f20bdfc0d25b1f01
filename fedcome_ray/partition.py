"""Partitions: which examples belong to which client."""

import heapq
import random
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from fedcome_ray.errors import DataError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.population import Indices

Labels = NDArray[np.int64]


class ClassesPerClient(Hyperparameters):
    """Each client holds examples of at most `classes` classes."""

    name: Literal["classes_per_client"] = "classes_per_client"
    classes: PositiveInt = 2


class Dirichlet(Hyperparameters):
    """Each class is shared out in proportions drawn from Dirichlet(alpha)."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5


class Iid(Hyperparameters):
    """Examples are dealt at random."""

    name: Literal["iid"] = "iid"


PartitionConfig = Annotated[ClassesPerClient | Dirichlet | Iid, Field(discriminator="name")]


def partition(
    config: ClassesPerClient | Dirichlet | Iid, labels: Labels, num_clients: int, seed: int
) -> list[Indices]:
    """One array of example indices for each client: disjoint, and together all examples."""
    if len(labels) < num_clients:
        raise DataError(
            f"data.num_clients: {num_clients} clients cannot share {len(labels)} examples"
        )
    if isinstance(config, ClassesPerClient):
        return classes_per_client(labels, num_clients, config.classes, seed)
    rng = np.random.default_rng(seed)
    if isinstance(config, Dirichlet):
        return dirichlet(labels, num_clients, config.alpha, rng)
    return np.array_split(rng.permutation(len(labels)), num_clients)


def classes_per_client(labels: Labels, num_clients: int, classes: int, seed: int) -> list[Indices]:
    """Clients take equal pieces from the `classes` fullest classes, one client after the other.

    Python's `random` and the heap of lists are part of the definition: they reproduce the
    published CIFAR-10 partition index by index.
    """
    num_labels = int(labels.max()) + 1
    if num_clients * classes < num_labels:
        raise DataError(
            f"data.partition.classes: {num_clients} clients of {classes} classes cannot cover "
            f"{num_labels} classes"
        )
    rng = random.Random(seed)
    order = list(range(len(labels)))
    rng.shuffle(order)
    by_label: list[list[int]] = [[] for _ in range(num_labels)]
    for position, example in enumerate(order):
        by_label[labels[example]].append(position)
    for positions in by_label:
        rng.shuffle(positions)

    for piece in range(len(labels) // (num_clients * classes), 0, -1):
        clients = _deal(by_label, num_clients, classes, piece)
        if clients is not None:
            shuffled = np.array(order)
            return [shuffled[positions] for positions in clients]
    raise DataError(
        f"data.partition: {len(labels)} examples in {num_labels} uneven classes cannot be dealt to "
        f"{num_clients} clients of {classes} classes; take fewer clients or another partition"
    )


def _deal(
    by_label: list[list[int]], num_clients: int, classes: int, piece: int
) -> list[list[int]] | None:
    """Deal pieces of this size; None if they do not go round."""
    heap = [(-len(positions), positions, label) for label, positions in enumerate(by_label)]
    heapq.heapify(heap)
    clients: list[list[int]] = []
    last_taker: dict[int, list[int]] = {}
    while len(clients) < num_clients:
        client: list[int] = []
        for _ in range(classes):
            if not heap:
                return None
            _, positions, label = heapq.heappop(heap)
            taken, rest = positions[:piece], positions[piece:]
            client += taken
            last_taker[label] = client
            if len(rest) < piece:
                client += rest
            else:
                heapq.heappush(heap, (-len(rest), rest, label))
        clients.append(client)
    # Uneven classes leave some examples over: they go to the last client that has their class.
    for _, rest, label in heap:
        if label not in last_taker:
            return None
        last_taker[label] += rest
    return clients


def dirichlet(
    labels: Labels, num_clients: int, alpha: float, rng: np.random.Generator
) -> list[Indices]:
    """Cut each class at random proportions; nobody is left without examples."""
    pieces: list[list[Indices]] = [[] for _ in range(num_clients)]
    for label in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(num_clients, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            pieces[client].append(part)
    clients = [np.concatenate(parts) for parts in pieces]
    for client in [client for client, own in enumerate(clients) if len(own) == 0]:
        richest = max(range(num_clients), key=lambda other: len(clients[other]))
        clients[client], clients[richest] = clients[richest][:1], clients[richest][1:]
    return clients
