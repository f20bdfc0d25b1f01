"""What can be said about the data of a trial: one record for each dataset."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fedcome_ray.datasets.partition import (
    AnyCifar100Partition,
    Cifar100PartitionConfig,
    ClassesPerClient,
    Iid5,
    PartitionConfig,
    Ring2,
    Shards,
)
from fedcome_ray.errors import did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters

TestSplit = Literal["natural", "label_matched"]


class Pooled(Hyperparameters):
    """A pool of examples that a partition shares out."""

    num_clients: PositiveInt = 100
    partition: AnyCifar100Partition
    test_split: TestSplit = "natural"
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
        return {"name": default.name, **value}


class Digits(Pooled):
    """1797 handwritten digits of 8x8 pixels, bundled with scikit-learn: real, no download."""

    dataset: Literal["digits"] = "digits"
    num_clients: PositiveInt = 50
    partition: PartitionConfig = Field(default_factory=ClassesPerClient)


class Mnist(Pooled):
    """70,000 handwritten digits of 28x28 pixels."""

    dataset: Literal["mnist"] = "mnist"
    partition: PartitionConfig = Field(default_factory=Shards)


class Cifar10(Pooled):
    """60,000 colour pictures of 32x32 pixels, in 10 classes."""

    dataset: Literal["cifar10"] = "cifar10"
    partition: PartitionConfig = Field(default_factory=ClassesPerClient)


class Cifar100(Pooled):
    """60,000 colour pictures of 32x32 pixels, in 100 classes of 20 superclasses."""

    dataset: Literal["cifar100"] = "cifar100"
    partition: Cifar100PartitionConfig = Field(default_factory=Ring2)

    @model_validator(mode="after")
    def _check_superclasses(self) -> Self:
        if isinstance(self.partition, Ring2 | Iid5) and self.num_clients != 100:
            raise ValueError(
                f"the partition `{self.partition.name}` makes 100 clients, 5 of each superclass, "
                f"got num_clients {self.num_clients}"
            )
        return self


class Femnist(Hyperparameters):
    """Handwritten digits and letters of 28x28 pixels; each writer is a client."""

    dataset: Literal["femnist"] = "femnist"
    num_clients: PositiveInt | None = None
    """The first writers by id; None: all that there are."""


class Synthetic(Hyperparameters):
    """Synthetic(alpha, beta) after FedProx: each client has its own softmax regression.

    Clients differ in their models by `alpha` and in their inputs by `beta`.
    """

    dataset: Literal["synthetic"] = "synthetic"
    alpha: NonNegativeFloat = 1.0
    beta: NonNegativeFloat = 1.0
    num_clients: PositiveInt = 100
    examples_per_client: PositiveInt = 50
    """Mean of the clients' training sizes, which follow a log-normal law."""
    num_features: PositiveInt = 60
    num_classes: PositiveInt = 10
    seed: NonNegativeInt = 1


class Npz(Hyperparameters):
    """A user's own federated dataset: a NumPy file of examples, labels and client numbers."""

    dataset: Annotated[str, Field(pattern="^npz:.+")]
    """`npz:` and the path of the file."""
    sha256: str | None = None
    """Of the file, filled in when the settings are read: other contents are another trial."""

    @model_validator(mode="before")
    @classmethod
    def _identify(cls, settings: Any) -> Any:
        path = Path(str(settings.get("dataset")).removeprefix("npz:")).expanduser()
        if settings.get("sha256") is None and path.is_file():
            state = path.stat()
            return {**settings, "sha256": _digest(path, state.st_mtime_ns, state.st_size)}
        return settings

    @property
    def path(self) -> Path:
        return Path(self.dataset.removeprefix("npz:")).expanduser()


@cache
def _digest(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


AnyDataset = Digits | Mnist | Cifar10 | Cifar100 | Femnist | Synthetic | Npz

BY_NAME: dict[str, type[AnyDataset]] = {
    "digits": Digits,
    "mnist": Mnist,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "femnist": Femnist,
    "synthetic": Synthetic,
}


def parse(value: object) -> AnyDataset:
    """The configuration of a dataset, from its name or from its settings with the name."""
    if isinstance(value, AnyDataset):
        return value
    settings = value if isinstance(value, dict) else {"dataset": value}
    name = str(settings.get("dataset"))
    config = Npz if name.startswith("npz:") else BY_NAME.get(name)
    if config is None:
        raise PydanticCustomError(
            "dataset",
            "unknown dataset `{name}`; {allowed}",
            {"name": name, "allowed": did_you_mean(name, [*BY_NAME, "npz:PATH"])},
        )
    return config.model_validate(settings)


# Parsed by us and not by pydantic's union: complaints name the field alone, and a near name.
DataConfig = Annotated[AnyDataset, BeforeValidator(parse)]
