"""Datasets that are one pool of examples, which a partition shares out."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt, field_validator

from fedcome_ray.datasets import partitions
from fedcome_ray.datasets.partitions import PartitionConfig, label_matched, partition
from fedcome_ray.datasets.population import Examples, Indices, Population, split
from fedcome_ray.errors import DataError, did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters, name_of

NUM_CLIENTS = 100


class Dealt(Hyperparameters):
    """How a pool of examples is shared out."""

    has_superclasses: ClassVar[bool] = False

    num_clients: PositiveInt | None = None
    """How many clients share the examples."""
    partition: PartitionConfig
    """Which training examples belong to which client."""
    test_split: Literal["natural", "label_matched"] = "natural"
    """`natural`: equal slices in the dataset's order, the same mix of classes for everybody.
    `label_matched`: a client is tested on the classes it trains on."""
    seed: NonNegativeInt = 1
    """Of the partition; separate from the trial's seed."""

    @field_validator("partition", mode="before")
    @classmethod
    def _complete(cls, value: object) -> object:
        """Settings without a name, like `partition.classes=3`, are those of the default."""
        if not isinstance(value, dict) or "name" in value:
            return value
        default = cls.model_fields["partition"].get_default(call_default_factory=True)
        return {"name": name_of(default), **value}

    @field_validator("partition")
    @classmethod
    def _check_superclasses(cls, value: Hyperparameters) -> Hyperparameters:
        if cls.has_superclasses or not partitions.REGISTRY.of(value).needs_superclasses:
            return value
        name = name_of(value)
        fitting = [
            other for other, entry in partitions.REGISTRY.items() if not entry.needs_superclasses
        ]
        raise ValueError(
            f"`name` needs superclasses, which this dataset does not have, got `{name}`; "
            f"{did_you_mean(name, fitting)}"
        )


class Pooled(Dealt):
    """The settings of a dataset that is always such a pool."""

    num_clients: PositiveInt = NUM_CLIENTS


def share_out(config: Dealt, train: Examples, test: Examples, num_classes: int) -> Population:
    """Deal the training examples by the partition, and the test examples as they are split."""
    num_clients = config.num_clients or NUM_CLIENTS
    owned = partition(config.partition, train.y, num_clients, config.seed)
    if config.test_split == "natural":
        shares: list[Indices] = np.array_split(np.arange(len(test.y)), num_clients)
    else:
        shares = label_matched([train.y[own] for own in owned], test.y)
    without = [client for client, own in enumerate(shares) if len(own) == 0]
    if without:
        raise DataError(
            f"data.num_clients: client {without[0]} would have no test examples "
            f"({len(without)} of {num_clients} clients, {len(test.y)} test examples, "
            f"test_split `{config.test_split}`); take fewer clients or another test_split"
        )
    return Population(split(train, owned), split(test, shares), num_classes)
