"""Published images that a partition shares out: what MNIST and both CIFARs have in common."""

from functools import lru_cache, partial
from pathlib import Path

from fedcome_ray.datasets import sources
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.pooled import Pooled, share_out, sizes
from fedcome_ray.datasets.population import Description, Examples, Population
from fedcome_ray.datasets.published import Published


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
    train, test = _examples(published, sources.data_folder(data_dir))
    return share_out(config, train, test, published.num_classes)


@lru_cache(maxsize=1)
def _examples(published: Published, folder: Path) -> tuple[Examples, Examples]:
    """Remembered, so that the partitions of one grid share their examples."""
    arrays = sources.open_arrays(published, folder)
    train, test = (Examples(published.normalise(side.x), side.y) for side in arrays)
    for examples in (train, test):
        examples.x.flags.writeable = False
        examples.y.flags.writeable = False
    return train, test


def _describe(published: Published, config: PooledImages) -> Description:
    left = sizes(config, published.num_train, published.num_test)
    return published.describe(*left, config.num_clients)
