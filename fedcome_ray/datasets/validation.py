"""Validation: a part of every client's training examples takes the place of its test examples."""

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.population import Indices, Population, Split, split_offsets


def hold_out(population: Population, share: float) -> Population:
    """The same clients, each tested on a share of its own training examples, trained on the rest.

    The test examples are gone: nothing that is chosen by the results can depend on them.
    """
    train = population.train
    chosen = held_out(train, share)
    return Population(_part(train, ~chosen), _part(train, chosen), population.num_classes)


def held_out(train: Split, share: float) -> NDArray[np.bool_]:
    """Which places of a split's order are held out, at least one of every client and never all.

    A client with a single example, as FEMNIST has, keeps it and is not tested. The others' are
    evenly spread over their examples sorted by class: each class is held out in proportion, to
    within one example, and no draw decides it.
    """
    sizes = train.sizes
    wanted = np.clip(np.rint(share * sizes).astype(np.int64), np.minimum(1, sizes - 1), sizes - 1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    by_class = np.lexsort((train.labels(), owner))
    rank = np.arange(len(owner)) - train.offsets[owner]
    # One is chosen wherever the line from 0 to `wanted` passes a half.
    passed = (2 * np.stack((rank, rank + 1)) * wanted[owner] + sizes[owner]) // (2 * sizes[owner])
    chosen = np.zeros(len(owner), dtype=bool)
    chosen[by_class] = passed[1] > passed[0]
    return chosen


def _part(side: Split, chosen: NDArray[np.bool_]) -> Split:
    """The chosen places of a split, in its order."""
    sizes: Indices = np.add.reduceat(chosen.astype(np.int64), side.offsets[:-1])
    return Split(side.examples, side.order[chosen], split_offsets(sizes))
