"""FEMNIST: the writers are the clients, so that no partition is needed.

Caldas et al., LEAF: A Benchmark for Federated Settings. https://leaf.cmu.edu
"""

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from fedcome_ray.datasets import leaf, sources
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings, Varying
from fedcome_ray.datasets.packed import PackedSide
from fedcome_ray.datasets.population import (
    Description,
    Examples,
    Population,
    Split,
    split_in_order,
)
from fedcome_ray.datasets.published import Originals, Published
from fedcome_ray.errors import DataError

PAPERS_WRITERS = 196


class Femnist(DatasetSettings, Varying):
    """Handwritten digits and letters of 28x28 pixels; each writer is a client."""

    dataset: Literal["femnist"] = "femnist"
    num_clients: PositiveInt | None = None
    """The first writers by id; None: all that there are."""


def load(config: Femnist, data_dir: Path | None) -> Population:
    folder = sources.data_folder(data_dir)
    arrays = sources.open_arrays(PUBLISHED, folder)
    wanted = config.num_clients or arrays.num_clients
    if wanted > arrays.num_clients:
        raise DataError(
            f"data.num_clients: there are {arrays.num_clients} writers in {folder}, "
            f"asked for {wanted}; add LEAF's other files or leave data.num_clients out"
        )
    train, test = (_first_writers(side, wanted) for side in arrays)
    return Population(train, test, PUBLISHED.num_classes)


def _first_writers(side: PackedSide, wanted: int) -> Split:
    sizes = np.bincount(side.clients)[:wanted]
    end = int(sizes.sum())
    return split_in_order(Examples(PUBLISHED.normalise(side.x[:end]), side.y[:end]), sizes)


def describe(config: Femnist) -> Description:
    """Writers vary; these are the paper's sizes, in proportion."""
    num_clients = config.num_clients or PAPERS_WRITERS
    totals = PUBLISHED.num_train, PUBLISHED.num_test
    num_train, num_test = (total * num_clients // PAPERS_WRITERS for total in totals)
    return PUBLISHED.describe(num_train, num_test, num_clients)


def are_present(folder: Path) -> bool:
    return leaf.find(folder) is not None


def how_to_get(folder: Path) -> list[str]:
    return [
        "make it:  LEAF's `preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then put its "
        f"folders train and test (JSON files) into {folder / 'femnist'}"
    ]


# Which writers there are depends on LEAF's sampling: these are the numbers of the FedCOME
# paper, and the constants are MNIST's although the background is white, as there.
PUBLISHED = Published(
    name="femnist",
    feature_shape=(1, 28, 28),
    num_classes=62,
    num_train=36_692,
    num_test=4_178,
    mean=(0.1307,),
    std=(0.3081,),
    num_writers=PAPERS_WRITERS,
    originals=Originals(are_present, leaf.read, how_to_get, are_imported=True),
)

DATASET = Dataset(
    config=Femnist,
    build=load,
    label="FEMNIST",
    describe=describe,
    check_available=partial(sources.check_available, PUBLISHED),
    published=PUBLISHED,
)
