"""Datasets by name: from a configuration to the population it describes."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from fedcome_ray.datasets import federated_npz, npz_files, sources, synthetic
from fedcome_ray.datasets.configs import (
    BY_NAME,
    AnyDataset,
    Cifar10,
    Cifar100,
    DataConfig,
    Digits,
    Femnist,
    Mnist,
    Npz,
    Pooled,
    Synthetic,
    parse,
)
from fedcome_ray.datasets.packed import Side
from fedcome_ray.datasets.partition import label_matched, partition
from fedcome_ray.datasets.population import (
    Description,
    Examples,
    Indices,
    Population,
    Split,
    split,
    split_in_order,
)
from fedcome_ray.datasets.published import FACTS
from fedcome_ray.errors import DataError

__all__ = [
    "BY_NAME",
    "AnyDataset",
    "Cifar10",
    "Cifar100",
    "DataConfig",
    "Description",
    "Digits",
    "Femnist",
    "Mnist",
    "Npz",
    "Synthetic",
    "check_available",
    "describe",
    "load",
    "parse",
]


def load(config: AnyDataset, data_dir: Path | None = None) -> Population:
    """The population that a configuration describes."""
    match config:
        case Synthetic():
            return synthetic.generate(config)
        case Npz():
            return federated_npz.load(config.path)
        case Femnist():
            return _writers(config, sources.data_folder(data_dir))
        case Digits():
            return _share_out(config, *_digits(), num_classes=10)
        case _:
            train, test = _images(config.dataset, sources.data_folder(data_dir))
            return _share_out(config, train, test, FACTS[config.dataset].num_classes)


def check_available(config: AnyDataset, data_dir: Path | None = None) -> None:
    """Raise the error of missing files now, before anything is started."""
    if isinstance(config, Npz):
        npz_files.check_has(config.path, federated_npz.ARRAYS)
    elif config.dataset in FACTS:
        sources.check_available(config.dataset, sources.data_folder(data_dir))


def describe(config: AnyDataset) -> Description:
    """Sizes for estimates; of FEMNIST, whose writers vary, those of the paper."""
    match config:
        case Synthetic():
            return synthetic.describe(config)
        case Npz():
            return federated_npz.describe(config.path)
        case Digits():
            return Description((1, 8, 8), 10, 1438, 359, config.num_clients)
        case Femnist():
            facts = FACTS["femnist"]
            all_writers = facts.num_writers or 1
            num_clients = config.num_clients or all_writers
            num_train = facts.num_train * num_clients // all_writers
            num_test = facts.num_test * num_clients // all_writers
            return Description(
                facts.feature_shape, facts.num_classes, num_train, num_test, num_clients
            )
        case _:
            facts = FACTS[config.dataset]
            return Description(*facts[:4], num_clients=config.num_clients)


def _digits() -> tuple[Examples, Examples]:
    from sklearn.datasets import load_digits  # slow to import

    pixels, labels = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    # Every fifth image is for testing: the file is ordered by writer, a cut would separate them.
    is_test = np.arange(len(y)) % 5 == 4
    return Examples(x[~is_test], y[~is_test]), Examples(x[is_test], y[is_test])


@lru_cache(maxsize=1)
def _images(name: str, folder: Path) -> tuple[Examples, Examples]:
    """Remembered, so that the partitions of one grid share their examples."""
    facts, arrays = FACTS[name], sources.open_arrays(name, folder)
    train, test = (Examples(facts.normalise(side.x), side.y) for side in arrays)
    for examples in (train, test):
        examples.x.flags.writeable = False
        examples.y.flags.writeable = False
    return train, test


def _share_out(config: Pooled, train: Examples, test: Examples, num_classes: int) -> Population:
    owned = partition(config.partition, train.y, config.num_clients, config.seed)
    if config.test_split == "natural":
        tested: list[Indices] = np.array_split(np.arange(len(test.y)), config.num_clients)
    else:
        tested = label_matched([train.y[own] for own in owned], test.y)
    without = [client for client, own in enumerate(tested) if len(own) == 0]
    if without:
        raise DataError(
            f"data.num_clients: client {without[0]} would have no test examples "
            f"({len(without)} of {config.num_clients} clients, {len(test.y)} test examples, "
            f"test_split `{config.test_split}`); take fewer clients or another test_split"
        )
    return Population(split(train, owned), split(test, tested), num_classes)


def _writers(config: Femnist, folder: Path) -> Population:
    facts = FACTS["femnist"]
    arrays = sources.open_arrays("femnist", folder)
    available = 1 + int(arrays.train.clients.max())
    wanted = config.num_clients or available
    if wanted > available:
        raise DataError(
            f"data.num_clients: there are {available} writers in {folder}, asked for {wanted}; "
            f"add LEAF's other files or leave data.num_clients out"
        )

    def first_writers(side: Side) -> Split:
        sizes = np.bincount(side.clients)[:wanted]
        end = int(sizes.sum())
        return split_in_order(Examples(facts.normalise(side.x[:end]), side.y[:end]), sizes)

    return Population(first_writers(arrays.train), first_writers(arrays.test), facts.num_classes)
