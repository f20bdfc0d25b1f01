from collections import Counter

import numpy as np
import pytest

from fedcome_ray.datasets.partitions import ClassesPerClient, partition
from tests.unit.datasets.partitions.counts import counts


@pytest.mark.parametrize(
    ("classes", "sizes", "classes_held", "class_sets"),
    [
        (2, {500: 100}, {2: 100}, 42),
        (3, {498: 96, 558: 3, 518: 1}, {3: 99, 2: 1}, 70),
        (4, {500: 100}, {4: 94, 3: 6}, 83),
        (5, {500: 100}, {5: 100}, 86),
        (7, {497: 98, 587: 1, 707: 1}, {7: 58, 6: 34, 5: 7, 4: 1}, 84),
    ],
)
def test_cifar10_is_partitioned_as_published(
    cifar10_labels, classes, sizes, classes_held, class_sets
) -> None:
    clients = partition(ClassesPerClient(classes=classes), cifar10_labels, 100, seed=1)
    held = [frozenset(cifar10_labels[own].tolist()) for own in clients]

    assert clients[0][:5].tolist() == [1317, 30100, 47634, 10113, 8991]
    assert Counter(len(own) for own in clients) == sizes
    assert Counter(len(own) for own in held) == classes_held
    assert len(set(held)) == class_sets
    assert len(np.unique(np.concatenate(clients))) == 50_000


@pytest.mark.parametrize(
    ("classes", "client", "expected"),
    [
        (2, 0, {1: 250, 6: 250}),
        (2, 1, {2: 250, 4: 250}),
        (2, 99, {7: 250, 9: 250}),
        (3, 0, dict.fromkeys((1, 2, 6), 166)),
        (3, 1, dict.fromkeys((0, 4, 9), 166)),
        (3, 99, dict.fromkeys((1, 2, 6), 186)),
        (4, 0, dict.fromkeys((1, 2, 4, 6), 125)),
        (4, 1, dict.fromkeys((0, 3, 5, 9), 125)),
        (4, 99, dict.fromkeys((1, 2, 4, 5), 125)),
    ],
)
def test_cifar10_clients_hold_the_published_classes(
    cifar10_labels, classes, client, expected
) -> None:
    clients = partition(ClassesPerClient(classes=classes), cifar10_labels, 100, seed=1)
    assert counts(cifar10_labels, clients[client]) == expected


def test_uneven_classes_are_cut_into_about_equal_pieces() -> None:
    labels = np.repeat(np.arange(10), [143, 146, 142, 147, 145, 146, 145, 143, 139, 142])
    sizes = [len(own) for own in partition(ClassesPerClient(classes=2), labels, 50, seed=1)]
    assert sum(sizes) == len(labels)
    assert min(sizes) >= 26
    assert max(sizes) <= 46


def test_a_class_nobody_has_is_left_out() -> None:
    labels = np.array([0, 2] * 20)
    clients = partition(ClassesPerClient(classes=2), labels, 4, seed=1)
    assert sorted(np.concatenate(clients).tolist()) == list(range(40))
