"""Partitions: which examples belong to which client."""

import heapq
import random
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from fedcome_ray.datasets.population import Indices
from fedcome_ray.errors import DataError
from fedcome_ray.hyperparameters import Hyperparameters

Labels = NDArray[np.int64]


class ClassesPerClient(Hyperparameters):
    """Each client holds examples of at most `classes` classes."""

    name: Literal["classes_per_client"] = "classes_per_client"
    classes: PositiveInt = 2


class Shards(Hyperparameters):
    """Examples are sorted by class, cut into equal pieces, and the pieces dealt at random.

    McMahan et al., 2017. A piece may hold the end of one class and the start of the next.
    """

    name: Literal["shards"] = "shards"
    per_client: PositiveInt = 2


class Ring2(Hyperparameters):
    """CIFAR-100: the five clients of a superclass hold halves of two of its classes, in a ring."""

    name: Literal["ring2"] = "ring2"


class Iid5(Hyperparameters):
    """CIFAR-100: each superclass is dealt at random to five clients."""

    name: Literal["iid5"] = "iid5"


class Dirichlet(Hyperparameters):
    """Each class is shared out in proportions drawn from Dirichlet(alpha)."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5


class Iid(Hyperparameters):
    """Examples are dealt at random."""

    name: Literal["iid"] = "iid"


AnyPartition = ClassesPerClient | Shards | Dirichlet | Iid
AnyCifar100Partition = AnyPartition | Ring2 | Iid5
PartitionConfig = Annotated[AnyPartition, Field(discriminator="name")]
Cifar100PartitionConfig = Annotated[AnyCifar100Partition, Field(discriminator="name")]

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


def partition(
    config: AnyCifar100Partition, labels: Labels, num_clients: int, seed: int
) -> list[Indices]:
    """One array of example indices for each client: disjoint, and together all examples."""
    if len(labels) < num_clients:
        raise DataError(
            f"data.num_clients: {num_clients} clients cannot share {len(labels)} examples"
        )
    rng = np.random.default_rng(seed)
    match config:
        case ClassesPerClient():
            return classes_per_client(labels, num_clients, config.classes, seed)
        case Shards():
            return shards(labels, num_clients, config.per_client, rng)
        case Ring2():
            return superclass_rings(labels)
        case Iid5():
            return superclass_deals(labels, rng)
        case Dirichlet():
            return dirichlet(labels, num_clients, config.alpha, rng)
        case Iid():
            return np.array_split(rng.permutation(len(labels)), num_clients)


def classes_per_client(labels: Labels, num_clients: int, classes: int, seed: int) -> list[Indices]:
    """Clients take a piece from the fullest class, `classes` times, one client after the other.

    Python's `random` and the heap are part of the definition: with equally large classes they
    reproduce the published CIFAR-10 partition index by index, where a class may come twice to
    one client and the last piece of a class is longer by what does not divide.
    """
    rng = random.Random(seed)
    order = list(range(len(labels)))
    rng.shuffle(order)
    by_label: list[list[int]] = [[] for _ in range(int(labels.max()) + 1)]
    for position, label in enumerate(labels[order].tolist()):
        by_label[label].append(position)
    for positions in by_label:
        rng.shuffle(positions)

    dealt = _deal([positions for positions in by_label if positions], num_clients, classes)
    shuffled = np.array(order)
    return [shuffled[positions] for positions in dealt]


def _deal(by_label: list[list[int]], num_clients: int, classes: int) -> list[list[int]]:
    sizes = [len(positions) for positions in by_label]
    pieces_left = _pieces(sizes, num_clients * classes)
    piece_sizes = [size // count for size, count in zip(sizes, pieces_left, strict=True)]
    # Equally full classes are told apart by their next position, as comparing the lists would.
    heap = [(-len(positions), positions[0], label) for label, positions in enumerate(by_label)]
    heapq.heapify(heap)
    clients: list[list[int]] = [[] for _ in range(num_clients)]
    for client in clients:
        for _ in range(classes):
            left, _, label = heapq.heappop(heap)
            pieces_left[label] -= 1
            start = len(by_label[label]) + left
            if pieces_left[label] == 0:
                client += by_label[label][start:]
                continue
            end = start + piece_sizes[label]
            client += by_label[label][start:end]
            heapq.heappush(heap, (left + piece_sizes[label], by_label[label][end], label))
    return clients


def _pieces(sizes: list[int], total: int) -> list[int]:
    """Into how many pieces each class is cut, so that the largest pieces are smallest."""
    if not len(sizes) <= total <= sum(sizes):
        raise DataError(
            f"data.partition.classes: {total} pieces (clients times classes per client) cannot be "
            f"cut from {sum(sizes)} examples of {len(sizes)} classes; change data.num_clients or "
            f"data.partition.classes"
        )
    counts = [1] * len(sizes)
    heap = [(-float(size), label) for label, size in enumerate(sizes)]
    heapq.heapify(heap)
    for _ in range(total - len(sizes)):
        label = heap[0][1]
        counts[label] += 1
        heapq.heapreplace(heap, (-sizes[label] / counts[label], label))
    return counts


def shards(
    labels: Labels, num_clients: int, per_client: int, rng: np.random.Generator
) -> list[Indices]:
    """Deal pieces of the examples sorted by class."""
    if len(labels) < num_clients * per_client:
        raise DataError(
            f"data.partition.per_client: {num_clients} clients of {per_client} pieces cannot share "
            f"{len(labels)} examples"
        )
    pieces = np.array_split(np.argsort(labels, kind="stable"), num_clients * per_client)
    dealt = rng.permutation(len(pieces)).reshape(num_clients, per_client)
    return [np.concatenate([pieces[piece] for piece in own]) for own in dealt]


def superclass_rings(labels: Labels) -> list[Indices]:
    """Client j of a superclass: the last half of its class j and the first half of class j + 1."""
    clients = []
    for members in _superclasses(labels):
        half_a_class = len(members) // (2 * CLIENTS_PER_SUPERCLASS)
        clients += np.array_split(np.roll(members, -half_a_class), CLIENTS_PER_SUPERCLASS)
    return clients


def superclass_deals(labels: Labels, rng: np.random.Generator) -> list[Indices]:
    """Five clients for each superclass, each with a random fifth of its examples."""
    clients = []
    for members in _superclasses(labels):
        clients += np.array_split(rng.permutation(members), CLIENTS_PER_SUPERCLASS)
    return clients


def _superclasses(labels: Labels) -> list[Indices]:
    """The examples of each superclass, class by class, in the dataset's order."""
    by_class = np.argsort(labels, kind="stable")
    superclass = CIFAR100_SUPERCLASS[labels[by_class]]
    return [by_class[superclass == one] for one in range(CIFAR100_SUPERCLASS.max() + 1)]


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


def label_matched(train: list[Labels], test_labels: Labels) -> list[Indices]:
    """Deal each class's test examples to the clients that train on it, in proportion.

    Test examples of a class that nobody trains on belong to nobody.
    """
    num_classes = 1 + max(int(test_labels.max()), *(int(own.max()) for own in train))
    held = np.stack([np.bincount(own, minlength=num_classes) for own in train])
    pieces: list[list[Indices]] = [[] for _ in train]
    for label in np.flatnonzero(held.any(axis=0)):
        members = np.flatnonzero(test_labels == label)
        shares = np.cumsum(held[:, label]) / held[:, label].sum()
        cuts = np.round(shares[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            pieces[client].append(part)
    return [np.concatenate(parts) for parts in pieces]
