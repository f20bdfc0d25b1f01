"""Scikit-learn's handwritten digits: real, small, and always there."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.partitions import ClassesPerClient, PartitionConfig
from fedcome_ray.datasets.pooled import Pooled, share_out
from fedcome_ray.datasets.population import Description, Examples, Population

NUM_CLASSES = 10


class Digits(DatasetSettings, Pooled):
    """1797 handwritten digits of 8x8 pixels, bundled with scikit-learn: real, no download."""

    dataset: Literal["digits"] = "digits"
    num_clients: PositiveInt = 50
    partition: PartitionConfig = Field(default_factory=ClassesPerClient)


def load(config: Digits, _data_dir: Path | None) -> Population:
    return share_out(config, *_examples(), num_classes=NUM_CLASSES)


def _examples() -> tuple[Examples, Examples]:
    numbers = np.loadtxt(_file(), delimiter=",")  # a row: the pixels, then the label
    x = (numbers[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = numbers[:, -1].astype(np.int64)
    # Every fifth image is for testing: the file is ordered by writer, a cut would separate them.
    is_test = np.arange(len(y)) % 5 == 4
    return Examples(x[~is_test], y[~is_test]), Examples(x[is_test], y[is_test])


def _file() -> Path:
    """What scikit-learn itself reads; importing it takes longer than a trial's first rounds."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def describe(config: Digits) -> Description:
    return Description((1, 8, 8), NUM_CLASSES, 1438, 359, config.num_clients)


DATASET = Dataset(config=Digits, build=load, label="digits", describe=describe)
