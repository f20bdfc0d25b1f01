import numpy as np

from fedcome_ray.datasets.partitions import SortedShards, partition
from tests.unit.datasets.partitions.counts import counts


def test_shards_are_pieces_of_the_examples_sorted_by_class() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 1000)
    clients = partition(SortedShards(), labels, 10, seed=1)
    rank = np.argsort(np.argsort(labels, kind="stable"))
    for own in clients:
        first, second = rank[own[:50]], rank[own[50:]]
        assert (np.diff(first) == 1).all()
        assert (np.diff(second) == 1).all()
        assert first[0] % 50 == second[0] % 50 == 0


def test_mnist_sized_shards_give_600_examples_of_few_digits() -> None:
    labels = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    clients = partition(SortedShards(), labels, 100, seed=1)
    assert {len(own) for own in clients} == {600}
    assert max(len(counts(labels, own)) for own in clients) <= 4
