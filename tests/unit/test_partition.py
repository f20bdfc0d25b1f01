from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedcome_ray.datasets.partition import (
    CIFAR100_SUPERCLASS,
    ClassesPerClient,
    Dirichlet,
    Iid,
    Iid5,
    Ring2,
    Shards,
    classes_per_client,
    label_matched,
    partition,
    shards,
    superclass_rings,
)
from fedcome_ray.errors import DataError

# The labels of CIFAR-10's training images in their published order (no images): the published
# partition is a function of this order alone.
CIFAR10_LABELS = Path(__file__).with_name("cifar10_train_labels.npz")

# https://www.cs.toronto.edu/~kriz/cifar.html; fine classes are numbered alphabetically.
CIFAR100_NAMES = [
    "beaver dolphin otter seal whale",
    "aquarium_fish flatfish ray shark trout",
    "orchid poppy rose sunflower tulip",
    "bottle bowl can cup plate",
    "apple mushroom orange pear sweet_pepper",
    "clock keyboard lamp telephone television",
    "bed chair couch table wardrobe",
    "bee beetle butterfly caterpillar cockroach",
    "bear leopard lion tiger wolf",
    "bridge castle house road skyscraper",
    "cloud forest mountain plain sea",
    "camel cattle chimpanzee elephant kangaroo",
    "fox porcupine possum raccoon skunk",
    "crab lobster snail spider worm",
    "baby boy girl man woman",
    "crocodile dinosaur lizard snake turtle",
    "hamster mouse rabbit shrew squirrel",
    "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "bicycle bus motorcycle pickup_truck train",
    "lawn_mower rocket streetcar tank tractor",
]


@pytest.fixture(scope="module")
def cifar10_labels():
    with np.load(CIFAR10_LABELS) as file:
        return file["y_train"].astype(np.int64)


def counts(labels, indices):
    return dict(Counter(labels[indices].tolist()))


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
):
    clients = classes_per_client(cifar10_labels, 100, classes, seed=1)
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
def test_cifar10_clients_hold_the_published_classes(cifar10_labels, classes, client, expected):
    clients = classes_per_client(cifar10_labels, 100, classes, seed=1)
    assert counts(cifar10_labels, clients[client]) == expected


def test_uneven_classes_are_cut_into_about_equal_pieces():
    labels = np.repeat(np.arange(10), [143, 146, 142, 147, 145, 146, 145, 143, 139, 142])
    sizes = [len(own) for own in classes_per_client(labels, 50, 2, seed=1)]
    assert sum(sizes) == len(labels)
    assert min(sizes) >= 26
    assert max(sizes) <= 46


def test_a_class_nobody_has_is_left_out():
    labels = np.array([0, 2] * 20)
    clients = classes_per_client(labels, 4, 2, seed=1)
    assert sorted(np.concatenate(clients).tolist()) == list(range(40))


def test_shards_are_pieces_of_the_examples_sorted_by_class():
    labels = np.random.default_rng(0).integers(0, 10, 1000)
    clients = shards(labels, 10, 2, np.random.default_rng(1))
    rank = np.argsort(np.argsort(labels, kind="stable"))
    for own in clients:
        first, second = rank[own[:50]], rank[own[50:]]
        assert (np.diff(first) == 1).all()
        assert (np.diff(second) == 1).all()
        assert first[0] % 50 == second[0] % 50 == 0


def test_mnist_sized_shards_give_600_examples_of_few_digits():
    labels = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    clients = partition(Shards(), labels, 100, seed=1)
    assert {len(own) for own in clients} == {600}
    assert max(len(counts(labels, own)) for own in clients) <= 4


def test_superclasses_are_those_of_the_dataset():
    fine = sorted(name for names in CIFAR100_NAMES for name in names.split())
    expected = [
        next(number for number, names in enumerate(CIFAR100_NAMES) if name in names.split())
        for name in fine
    ]
    assert CIFAR100_SUPERCLASS.tolist() == expected


def test_ring2_gives_the_last_half_of_a_class_and_the_first_half_of_the_next():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 6))
    members = [np.flatnonzero(labels == label).tolist() for label in range(100)]
    aquatic = [4, 30, 55, 72, 95]  # beaver, dolphin, otter, seal, whale
    clients = superclass_rings(labels)
    assert len(clients) == 100
    for client in range(5):
        this, following = aquatic[client], aquatic[(client + 1) % 5]
        assert clients[client].tolist() == members[this][3:] + members[following][:3]


def test_iid5_deals_each_superclass_to_five_clients():
    labels = np.repeat(np.arange(100), 20)
    clients = partition(Iid5(), labels, 100, seed=1)
    for client, own in enumerate(clients):
        assert set(CIFAR100_SUPERCLASS[labels[own]]) == {client // 5}
        assert len(own) == 20
    assert np.mean([len(set(labels[own])) for own in clients]) > 4.8


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ClassesPerClient(), [81, 77, 83]),
        (Shards(), [80, 81, 82]),
        (Dirichlet(), [8, 27, 70]),
        (Iid(), [86, 101, 48]),
    ],
)
def test_a_seed_means_the_same_everywhere(config, expected):
    """Recorded on Linux, Python 3.11, NumPy 2.4: guards against a change of the generators."""
    labels = np.arange(120) // 12
    assert partition(config, labels, 6, seed=1)[0][:3].tolist() == expected


def test_clients_are_tested_on_the_classes_they_train_on_in_proportion():
    train = [np.array([0] * 30 + [1] * 10), np.array([0] * 10), np.array([2] * 5)]
    test = np.array([0, 1, 2, 3] * 8)
    clients = label_matched(train, test)
    assert [counts(test, own) for own in clients] == [{0: 6, 1: 8}, {0: 2}, {2: 8}]
    assert 3 not in test[np.concatenate(clients)]  # nobody trains on it


def test_label_matched_cifar10_clients_have_50_test_images_of_each_class(cifar10_labels):
    clients = classes_per_client(cifar10_labels, 100, 2, seed=1)
    test_labels = np.tile(np.arange(10), 1000)
    for own, tested in zip(
        clients, label_matched([cifar10_labels[own] for own in clients], test_labels), strict=True
    ):
        assert counts(test_labels, tested) == dict.fromkeys(set(cifar10_labels[own].tolist()), 50)


@pytest.mark.parametrize(
    ("config", "num_clients", "message"),
    [
        (Iid(), 21, "21 clients cannot share 20 examples"),
        (ClassesPerClient(classes=3), 10, "30 pieces .* 20 examples"),
        (ClassesPerClient(classes=1), 5, "5 pieces .* 10 classes"),
        (Shards(per_client=3), 10, "10 clients of 3 pieces cannot share 20 examples"),
        (Ring2(), 21, "21 clients cannot share"),
    ],
)
def test_too_few_examples_are_an_error(config, num_clients, message):
    with pytest.raises(DataError, match=message):
        partition(config, np.arange(20) % 10, num_clients, seed=1)
