"""Published images that a partition shares out: what MNIST and both CIFARs have in common."""

from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from fedcome_ray.datasets import sources
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.packed import PackedSide
from fedcome_ray.datasets.pooled import Pooled, share_out
from fedcome_ray.datasets.population import Description, Examples, Features, Population
from fedcome_ray.datasets.published import Published

_PIXELS: WeakValueDictionary[tuple[Any, ...], Features] = WeakValueDictionary()
"""Known as long as somebody has them, so that the partitions of one grid share their examples."""


class PooledImages(DatasetSettings, Pooled):
    """The settings of published images."""


def dataset(config: type[PooledImages], published: Published, label: str) -> Dataset:
    """The record of such a dataset."""
    return Dataset(
        config=config,
        build=partial(_load, published),
        label=label,
        describe=partial(_describe, published),
        check_available=partial(sources.check_available, published),
        published=published,
    )


def _load(published: Published, config: PooledImages, data_dir: Path | None) -> Population:
    folder = sources.data_folder(data_dir)
    arrays = sources.open_arrays(published, folder)
    train = _examples(published, arrays.train, (published.name, folder, "train"))
    test = _examples(published, arrays.test, (published.name, folder, "test"))
    return share_out(config, train, test, published.num_classes)


def _examples(published: Published, side: PackedSide, key: tuple[Any, ...]) -> Examples:
    x = _PIXELS.get(key)
    if x is None:
        x = _PIXELS[key] = np.array(side.x)  # a copy: the file may change
    x.flags.writeable = side.y.flags.writeable = False
    return Examples(x, side.y, published.scale)


def _describe(published: Published, config: PooledImages) -> Description:
    return published.describe(published.num_train, published.num_test, config.num_clients)
