"""CIFAR-10 (Krizhevsky, 2009)."""

from typing import Literal

from pydantic import Field

from fedcome_ray.datasets import cifar, images
from fedcome_ray.datasets.cifar import CifarFiles
from fedcome_ray.datasets.images import PooledImages
from fedcome_ray.datasets.partitions import ClassesPerClient, PartitionConfig
from fedcome_ray.datasets.published import Published


class Cifar10(PooledImages):
    """60,000 colour pictures of 32x32 pixels, in 10 classes."""

    dataset: Literal["cifar10"] = "cifar10"
    partition: PartitionConfig = Field(default_factory=ClassesPerClient)


FILES = CifarFiles(
    name="cifar10",
    torchvision_name="CIFAR10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    labels="labels",
)

PUBLISHED = Published(
    name="cifar10",
    feature_shape=(3, 32, 32),
    num_classes=10,
    num_train=50_000,
    num_test=10_000,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    originals=cifar.originals(FILES),
)

DATASET = images.dataset(Cifar10, PUBLISHED, "CIFAR-10")
