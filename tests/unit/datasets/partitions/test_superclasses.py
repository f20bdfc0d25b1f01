import numpy as np

from fedcome_ray.datasets.partitions import Iid5, Ring2, partition
from fedcome_ray.datasets.partitions.superclasses import CIFAR100_SUPERCLASS

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


def test_superclasses_are_those_of_the_dataset() -> None:
    fine = sorted(name for names in CIFAR100_NAMES for name in names.split())
    expected = [
        next(number for number, names in enumerate(CIFAR100_NAMES) if name in names.split())
        for name in fine
    ]
    assert CIFAR100_SUPERCLASS.tolist() == expected


def test_ring2_gives_the_last_half_of_a_class_and_the_first_half_of_the_next() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 6))
    members = [np.flatnonzero(labels == label).tolist() for label in range(100)]
    aquatic = [4, 30, 55, 72, 95]  # beaver, dolphin, otter, seal, whale
    clients = partition(Ring2(), labels, 100, seed=1)
    assert len(clients) == 100
    for client in range(5):
        this, following = aquatic[client], aquatic[(client + 1) % 5]
        assert clients[client].tolist() == members[this][3:] + members[following][:3]


def test_iid5_deals_each_superclass_to_five_clients() -> None:
    labels = np.repeat(np.arange(100), 20)
    clients = partition(Iid5(), labels, 100, seed=1)
    for client, own in enumerate(clients):
        assert set(CIFAR100_SUPERCLASS[labels[own]]) == {client // 5}
        assert len(own) == 20
    assert np.mean([len(set(labels[own])) for own in clients]) > 4.8
