"""Published datasets with natural clients: what FEMNIST's writers and Shakespeare's roles share."""

from functools import partial
from pathlib import Path

import numpy as np
from pydantic import PositiveInt

from fedcome_ray.datasets import sources
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings, Varying
from fedcome_ray.datasets.packed import PackedSide
from fedcome_ray.datasets.population import (
    Description,
    Population,
    Split,
    split_in_order,
)
from fedcome_ray.datasets.published import Published
from fedcome_ray.errors import DataError


class Natural(DatasetSettings, Varying):
    """Their settings."""

    num_clients: PositiveInt | None = None
    """The first clients by id; None: all that there are."""


def dataset(config: type[Natural], published: Published, num_clients: int, label: str) -> Dataset:
    """The record of such a dataset, which has that many clients where it was published."""
    return Dataset(
        config=config,
        build=partial(_load, published),
        label=label,
        describe=partial(_describe, published, num_clients),
        check_available=partial(sources.check_available, published),
        published=published,
    )


def _load(published: Published, config: Natural, data_dir: Path | None) -> Population:
    folder = sources.data_folder(data_dir)
    arrays = sources.open_arrays(published, folder)
    wanted = config.num_clients or arrays.num_clients
    if wanted > arrays.num_clients:
        raise DataError(
            f"data.num_clients: there are {arrays.num_clients} {published.clients} in {folder}, "
            f"asked for {wanted}; add LEAF's other files or leave data.num_clients out"
        )
    train, test = (_first_clients(published, side, wanted) for side in arrays)
    return Population(train, test, published.num_classes)


def _first_clients(published: Published, side: PackedSide, wanted: int) -> Split:
    sizes = np.bincount(side.clients)[:wanted]
    end = int(sizes.sum())
    return split_in_order(published.examples(side.x[:end], side.y[:end]), sizes)


def _describe(published: Published, num_published: int, config: Natural) -> Description:
    """Which clients there are varies; these are the published sizes, in proportion."""
    num_clients = config.num_clients or num_published
    totals = published.num_train, published.num_test
    num_train, num_test = (total * num_clients // num_published for total in totals)
    return published.describe(num_train, num_test, num_clients)
