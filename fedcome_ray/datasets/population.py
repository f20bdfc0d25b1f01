"""The clients of an experiment and their examples.

All examples are kept once, pooled, in the dataset's own order; a client is a segment of an index
array. A population is a few NumPy arrays, so that Ray shares it between processes without a copy,
and different partitions of one dataset share its examples.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Labels = NDArray[np.int64]
Side = Literal["test", "train"]


class Examples(NamedTuple):
    """Labelled examples in the dataset's order."""

    x: NDArray[np.float32]  # [examples, ...features]
    y: Labels  # [examples]


class Split(NamedTuple):
    """The training or the test side of a population."""

    examples: Examples
    order: Indices  # the examples of client 0, then those of client 1, ...
    offsets: Indices  # client c owns order[offsets[c]:offsets[c + 1]]; [num_clients + 1]

    @property
    def sizes(self) -> Indices:
        """Examples of each client, `[num_clients]`."""
        return np.diff(self.offsets)


class Population(NamedTuple):
    """Everything that clients are: their training and test examples."""

    train: Split
    test: Split
    num_classes: int

    def side(self, name: Side) -> Split:
        return self.test if name == "test" else self.train

    @property
    def num_clients(self) -> int:
        return len(self.train.offsets) - 1

    @property
    def feature_shape(self) -> tuple[int, ...]:
        return self.train.examples.x.shape[1:]


class Description(NamedTuple):
    """What can be said of a population without reading its examples."""

    feature_shape: tuple[int, ...]
    num_classes: int
    num_train: int
    num_test: int
    num_clients: int


def split(examples: Examples, clients: Sequence[Indices]) -> Split:
    """Give each client its examples."""
    return Split(examples, np.concatenate(clients), _offsets([len(own) for own in clients]))


def split_in_order(examples: Examples, sizes: Indices) -> Split:
    """Give the first examples to client 0, the next to client 1, and so on."""
    return Split(examples, np.arange(len(examples.y)), _offsets(sizes))


def split_by_client(examples: Examples, clients: Indices, num_clients: int) -> Split:
    """Give each example to the client whose number stands beside it."""
    sizes = np.bincount(clients, minlength=num_clients)
    return Split(examples, np.argsort(clients, kind="stable"), _offsets(sizes))


def _offsets(sizes: Sequence[int] | Indices) -> Indices:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
