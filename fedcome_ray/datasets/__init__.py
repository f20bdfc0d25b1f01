"""Datasets by name: from settings to a population; knows no models, methods, clients nor Ray."""

from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from fedcome_ray.datasets import (
    cifar10,
    cifar100,
    digits,
    femnist,
    mnist,
    npz,
    packed,
    population,
    shakespeare,
    sources,
    synthetic,
)
from fedcome_ray.datasets.cifar10 import Cifar10
from fedcome_ray.datasets.cifar100 import Cifar100
from fedcome_ray.datasets.dataset import Dataset, DatasetRegistry, DatasetSettings, Varying
from fedcome_ray.datasets.digits import Digits
from fedcome_ray.datasets.femnist import Femnist
from fedcome_ray.datasets.mnist import Mnist
from fedcome_ray.datasets.npz import Npz
from fedcome_ray.datasets.population import Description, Population
from fedcome_ray.datasets.published import Published
from fedcome_ray.datasets.shakespeare import Shakespeare
from fedcome_ray.datasets.synthetic import Synthetic
from fedcome_ray.datasets.validation import hold_out
from fedcome_ray.errors import DataError, did_you_mean

__all__ = [
    "REGISTRY",
    "Cifar10",
    "Cifar100",
    "DataConfig",
    "Dataset",
    "DatasetSettings",
    "Description",
    "Digits",
    "Femnist",
    "Mnist",
    "Npz",
    "Shakespeare",
    "Synthetic",
    "check_available",
    "describe",
    "identified",
    "load",
    "parse",
    "with_files",
]

REGISTRY = DatasetRegistry(
    "dataset",
    [
        digits.DATASET,
        mnist.DATASET,
        cifar10.DATASET,
        cifar100.DATASET,
        femnist.DATASET,
        shakespeare.DATASET,
        synthetic.DATASET,
    ],
    chosen_by="dataset",
)
REGISTRY["npz:PATH"] = npz.DATASET  # by hand: only its path makes it a name


def parse(value: object) -> DatasetSettings:
    """The settings of a dataset, from its name or from a mapping with the name."""
    if isinstance(value, DatasetSettings):
        return value
    settings = value if isinstance(value, dict) else {"dataset": value}
    if "dataset" not in settings:
        raise PydanticCustomError(
            "dataset",
            "a dataset is given by `data.dataset` and its settings; {allowed}",
            {"allowed": did_you_mean("", REGISTRY)},
        )
    return REGISTRY.entry_named(settings["dataset"]).config.model_validate(settings)


def load(config: DatasetSettings, data_dir: Path | None = None) -> Population:
    """The population that a configuration describes."""
    if isinstance(config, Varying) and config.sha256 is not None:
        found = identified(config.model_copy(update={"sha256": None}), data_dir)
        if found != config:
            raise DataError(
                f"data.sha256: the files of {config.dataset} in {sources.data_folder(data_dir)} "
                f"are not those that the trial was written down with"
            )
    population = REGISTRY.of(config).build(config, data_dir)
    return population if config.validation is None else hold_out(population, config.validation)


def identified(config: DatasetSettings, data_dir: Path | None = None) -> DatasetSettings:
    """The configuration with the digest of its contents, where the name does not determine them.

    Without files it is left as it is; what needs them will say that they are missing.
    """
    published = REGISTRY.of(config).published
    if not isinstance(config, Varying) or config.sha256 is not None or published is None:
        return config
    folder = sources.data_folder(data_dir)
    if sources.state(published, folder) == "missing":
        return config
    arrays = sources.open_arrays(published, folder)
    return config.model_copy(update={"sha256": packed.digest(arrays)})


def check_available(config: DatasetSettings, data_dir: Path | None = None) -> None:
    """Raise the error of missing files now, before anything is started."""
    REGISTRY.of(config).check_available(config, data_dir)


def describe(config: DatasetSettings) -> Description:
    """Sizes for estimates; of LEAF's datasets, which vary, the published ones."""
    describe_unread = REGISTRY.of(config).describe
    if describe_unread is None:
        return population.describe(load(config))
    whole = describe_unread(config)
    if config.validation is None:
        return whole
    num_held_out = round(config.validation * whole.num_train)
    return whole._replace(num_train=whole.num_train - num_held_out, num_test=num_held_out)


def with_files() -> dict[str, Published]:
    """The datasets that have files to get, by name."""
    return {name: entry.published for name, entry in REGISTRY.items() if entry.published}


DataConfig = Annotated[SerializeAsAny[DatasetSettings], PlainValidator(parse)]
