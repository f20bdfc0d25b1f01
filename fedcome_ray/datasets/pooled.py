"""Datasets that are one pool of examples, which a partition shares out."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from fedcome_ray.datasets import partitions
from fedcome_ray.datasets.partitions import PartitionConfig, label_matched, partition
from fedcome_ray.datasets.population import Examples, Indices, Population, split
from fedcome_ray.errors import DataError, did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters, name_of


class Pooled(Hyperparameters):
    """The settings that such datasets share."""

    has_superclasses: ClassVar[bool] = False

    num_clients: PositiveInt = 100
    """How many clients share the examples."""
    partition: PartitionConfig
    """Which training examples belong to which client."""
    test_split: Literal["natural", "label_matched"] = "natural"
    """`natural`: equal slices in the dataset's order, the same mix of classes for everybody.
    `label_matched`: a client is tested on the classes it trains on."""
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the training examples that is held out and tested on instead of the test examples:
    to choose settings by. Unset, the test examples are used."""
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


def share_out(config: Pooled, train: Examples, test: Examples, num_classes: int) -> Population:
    """Deal the training examples by the partition, and the test examples as they are split."""
    kept, tested = np.arange(len(train.y)), np.arange(len(test.y))
    if config.validation is not None:
        is_held_out = held_out(len(train.y), config.validation)
        kept, tested, test = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out), train
    dealt = partition(config.partition, train.y[kept], config.num_clients, config.seed)
    owned = [kept[own] for own in dealt]
    if config.test_split == "natural":
        shares: list[Indices] = np.array_split(tested, config.num_clients)
    else:
        matched = label_matched([train.y[own] for own in owned], test.y[tested])
        shares = [tested[own] for own in matched]
    without = [client for client, own in enumerate(shares) if len(own) == 0]
    if without:
        raise DataError(
            f"data.num_clients: client {without[0]} would have no test examples "
            f"({len(without)} of {config.num_clients} clients, {len(tested)} test examples, "
            f"test_split `{config.test_split}`); take fewer clients or another test_split"
        )
    return Population(split(train, owned), split(test, shares), num_classes)


def held_out(num_examples: int, share: float) -> NDArray[np.bool_]:
    """Which examples are held out: evenly spread, so the same mix whatever the file's order."""
    chosen: NDArray[np.bool_] = np.diff(np.floor(share * np.arange(num_examples + 1))) > 0
    return chosen


def sizes(config: Pooled, num_train: int, num_test: int) -> tuple[int, int]:
    """The numbers of training and test examples that are left of a dataset with these."""
    if config.validation is None:
        return num_train, num_test
    num_held_out = int(held_out(num_train, config.validation).sum())
    return num_train - num_held_out, num_held_out
