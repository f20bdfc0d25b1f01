"""Partitions by name: which training examples belong to which client, from labels alone.

A partition is a class of settings, whose `name` has a default, and a function that deals examples
with these labels to that many clients.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.datasets.partitions import (
    classes_per_client,
    dirichlet,
    iid,
    shards,
    superclasses,
)
from fedcome_ray.datasets.partitions.classes_per_client import ClassesPerClient
from fedcome_ray.datasets.partitions.dirichlet import Dirichlet
from fedcome_ray.datasets.partitions.iid import Iid
from fedcome_ray.datasets.partitions.matching import label_matched
from fedcome_ray.datasets.partitions.shards import SortedShards
from fedcome_ray.datasets.partitions.superclasses import Iid5, Ring2
from fedcome_ray.datasets.population import Indices, Labels
from fedcome_ray.errors import DataError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Entry, Registry

__all__ = [
    "REGISTRY",
    "ClassesPerClient",
    "Dirichlet",
    "Iid",
    "Iid5",
    "PartitionConfig",
    "Ring2",
    "SortedShards",
    "label_matched",
    "partition",
]


@dataclass(frozen=True)
class Partition(Entry[list[Indices]]):
    """Its `build` takes the settings, the labels, the number of clients and the seed."""

    needs_superclasses: bool = False
    """Whether it is for CIFAR-100 alone."""


REGISTRY: Registry[Partition] = Registry(
    "partition",
    [
        Partition(ClassesPerClient, classes_per_client.deal),
        Partition(SortedShards, shards.deal),
        Partition(Ring2, superclasses.deal_ring2, needs_superclasses=True),
        Partition(Iid5, superclasses.deal_iid5, needs_superclasses=True),
        Partition(Dirichlet, dirichlet.deal),
        Partition(Iid, iid.deal),
    ],
)


def partition(
    config: Hyperparameters, labels: Labels, num_clients: int, seed: int
) -> list[Indices]:
    """One array of example indices for each client: disjoint, and together all examples."""
    if len(labels) < num_clients:
        raise DataError(
            f"data.num_clients: {num_clients} clients cannot share {len(labels)} examples"
        )
    return REGISTRY.of(config).build(config, labels, num_clients, seed)


PartitionConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(REGISTRY.parse),
]
