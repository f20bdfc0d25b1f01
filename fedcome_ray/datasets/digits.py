"""Scikit-learn's handwritten digits: real, small, and always there."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.partitions import ClassesPerClient, PartitionConfig
from fedcome_ray.datasets.pooled import Pooled, share_out, sizes
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
    from sklearn.datasets import load_digits  # slow to import

    pixels, labels = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    # Every fifth image is for testing: the file is ordered by writer, a cut would separate them.
    is_test = np.arange(len(y)) % 5 == 4
    return Examples(x[~is_test], y[~is_test]), Examples(x[is_test], y[is_test])


def describe(config: Digits) -> Description:
    return Description((1, 8, 8), NUM_CLASSES, *sizes(config, 1438, 359), config.num_clients)


DATASET = Dataset(config=Digits, build=load, label="digits", describe=describe)
