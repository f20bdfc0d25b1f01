import numpy as np

from fedcome_ray.datasets.partitions import ClassesPerClient, label_matched, partition
from tests.unit.datasets.partitions.counts import counts


def test_clients_are_tested_on_the_classes_they_train_on_in_proportion() -> None:
    train = [np.array([0] * 30 + [1] * 10), np.array([0] * 10), np.array([2] * 5)]
    test = np.array([0, 1, 2, 3] * 8)
    clients = label_matched(train, test)
    assert [counts(test, own) for own in clients] == [{0: 6, 1: 8}, {0: 2}, {2: 8}]
    assert 3 not in test[np.concatenate(clients)]  # nobody trains on it


def test_label_matched_cifar10_clients_have_50_test_images_of_each_class(cifar10_labels) -> None:
    clients = partition(ClassesPerClient(classes=2), cifar10_labels, 100, seed=1)
    test_labels = np.tile(np.arange(10), 1000)
    for own, tested in zip(
        clients, label_matched([cifar10_labels[own] for own in clients], test_labels), strict=True
    ):
        assert counts(test_labels, tested) == dict.fromkeys(set(cifar10_labels[own].tolist()), 50)
