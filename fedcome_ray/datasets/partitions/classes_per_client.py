"""Each client holds a few classes, as the published CIFAR-10 partition has them."""

import heapq
import random
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.errors import DataError
from fedcome_ray.hyperparameters import Hyperparameters


class ClassesPerClient(Hyperparameters):
    """Each client holds examples of at most `classes` classes."""

    name: Literal["classes_per_client"] = "classes_per_client"
    classes: PositiveInt = 2
    """The most classes that a client has."""


def deal(config: ClassesPerClient, labels: Labels, num_clients: int, seed: int) -> list[Indices]:
    """Clients take a piece from the fullest class, `classes` times, one client after the other.

    Python's `random` and the heap are part of the definition: with equally large classes they
    reproduce the published CIFAR-10 partition index by index, where a class may come twice to
    one client and the last piece of a class is longer by what does not divide.
    """
    rng = random.Random(seed)  # nosec B311
    order = list(range(len(labels)))
    rng.shuffle(order)
    by_label: list[list[int]] = [[] for _ in range(int(labels.max()) + 1)]
    for position, label in enumerate(labels[order].tolist()):
        by_label[label].append(position)
    for positions in by_label:
        rng.shuffle(positions)

    present = [positions for positions in by_label if positions]
    dealt = _deal_pieces(present, num_clients, config.classes)
    shuffled = np.array(order)
    return [shuffled[positions] for positions in dealt]


def _deal_pieces(by_label: list[list[int]], num_clients: int, classes: int) -> list[list[int]]:
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
            f"cut from {sum(sizes)} examples of {len(sizes)} classes: at least one of each class, "
            f"no more than examples; change data.num_clients or data.partition.classes"
        )
    counts = [1] * len(sizes)
    heap = [(-float(size), label) for label, size in enumerate(sizes)]
    heapq.heapify(heap)
    for _ in range(total - len(sizes)):
        label = heap[0][1]
        counts[label] += 1
        heapq.heapreplace(heap, (-sizes[label] / counts[label], label))
    return counts
