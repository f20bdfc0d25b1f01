"""The clients of an experiment and their examples.

All examples are kept once, pooled, in the dataset's own order; a client is a segment of an index
array. A population is a few NumPy arrays, so that Ray shares it between processes without a copy,
and different partitions of one dataset share its examples.

Generated examples may be too many to keep. Then nobody has them, and a split knows how to draw
those of single clients instead.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Labels = NDArray[np.int64]
Features = NDArray[Any]  # float32, integers such as the ids of tokens, or bytes with a scale
FLOAT32 = np.dtype(np.float32)
Side = Literal["test", "train"]


class Scale(NamedTuple):
    """Of images that are kept as bytes: models are given `factor * byte + shift`, in float32.

    A quarter of the memory, and of the way to the processor.
    """

    factor: NDArray[np.float32]  # [channels, 1, 1], or one for all
    shift: NDArray[np.float32]


class Examples(NamedTuple):
    """Labelled examples in the dataset's order."""

    x: Features  # [examples, ...features]
    y: Labels  # [examples]
    scale: Scale | None = None

    @property
    def features(self) -> Features:
        """What models are given."""
        return self.x if self.scale is None else self.scale.factor * self.x + self.scale.shift


def digest(examples: Examples) -> str:
    """A checksum of all that models are given."""
    content = hashlib.sha256()
    for array in (examples.x, examples.y, *(examples.scale or ())):
        content.update(f"{array.dtype.str} {array.shape} ".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


Draw = Callable[[Indices], Examples]
"""(clients, increasing) -> their examples, one client after the other"""
LABELS_AT_A_TIME = 1024  # clients


class Split(NamedTuple):
    """The training or the test side of a population."""

    examples: Examples
    order: Indices  # the examples of client 0, then those of client 1, ...
    offsets: Indices  # client c owns order[offsets[c]:offsets[c + 1]]; [num_clients + 1]
    draw: Draw | None = None  # if given, there are no `examples` and no `order`

    @property
    def sizes(self) -> Indices:
        """Examples of each client, `[num_clients]`."""
        return np.diff(self.offsets)

    @property
    def num_examples(self) -> int:
        return int(self.offsets[-1])

    def of(self, clients: Indices) -> "Split":
        """One in which at least these clients have their examples; drawn, the others have none."""
        if self.draw is None:
            return self
        some, sizes = np.unique(clients), np.zeros(len(self.offsets) - 1, np.int64)
        sizes[some] = self.offsets[some + 1] - self.offsets[some]
        return split_in_order(self.draw(some), sizes)

    def at(self, start: int, end: int) -> tuple["Split", int]:
        """One of the clients whose examples have these places, drawn; the place of its first."""
        assert self.draw is not None
        last_place = min(end, self.num_examples) - 1
        first, last = np.searchsorted(self.offsets, (start, last_place), side="right") - 1
        some = np.arange(first, last + 1)
        sizes = self.offsets[some + 1] - self.offsets[some]
        return split_in_order(self.draw(some), sizes), int(self.offsets[first])

    def labels(self) -> Labels:
        """Of all examples, client by client."""
        if self.draw is None:
            return self.examples.y[self.order]
        clients = np.arange(len(self.offsets) - 1)
        parts = np.split(clients, clients[LABELS_AT_A_TIME::LABELS_AT_A_TIME])
        return np.concatenate([self.draw(some).y for some in parts])


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

    @property
    def feature_dtype(self) -> "np.dtype[Any]":
        """Of what models are given."""
        examples = self.train.examples
        return examples.x.dtype if examples.scale is None else FLOAT32


class Description(NamedTuple):
    """What can be said of a population without reading its examples."""

    feature_shape: tuple[int, ...]
    num_classes: int
    num_train: int
    num_test: int
    num_clients: int
    feature_dtype: "np.dtype[Any]" = FLOAT32
    are_bytes: bool = False  # of which features are made, see `Scale`
    are_drawn: bool = False  # when they are needed, see `Split`

    @property
    def example_bytes(self) -> int:
        """Of the features of an example in memory."""
        bytes_each = 1 if self.are_bytes else self.feature_dtype.itemsize
        return bytes_each * math.prod(self.feature_shape)


def describe(population: Population) -> Description:
    """The same of a population that has been read."""
    return Description(
        population.feature_shape,
        population.num_classes,
        population.train.num_examples,
        population.test.num_examples,
        population.num_clients,
        population.feature_dtype,
        population.train.examples.scale is not None,
        population.train.draw is not None,
    )


def form_of(some: Population | Description) -> tuple[tuple[int, ...], int, "np.dtype[Any]"]:
    """What decides how a model has to be: the shape of an example, classes, type of numbers."""
    return some.feature_shape, some.num_classes, some.feature_dtype


def split(examples: Examples, clients: Sequence[Indices]) -> Split:
    """Give each client its examples."""
    return Split(examples, np.concatenate(clients), split_offsets([len(own) for own in clients]))


def split_in_order(examples: Examples, sizes: Indices) -> Split:
    """Give the first examples to client 0, the next to client 1, and so on."""
    return Split(examples, np.arange(len(examples.y)), split_offsets(sizes))


def split_drawn(draw: Draw, sizes: Indices) -> Split:
    """Clients of these sizes, whose examples are drawn when they are needed."""
    nobody = np.arange(0)
    return Split(draw(nobody), nobody, split_offsets(sizes), draw)


def split_by_client(examples: Examples, clients: Indices, num_clients: int) -> Split:
    """Give each example to the client whose number stands beside it."""
    sizes = np.bincount(clients, minlength=num_clients)
    return Split(examples, np.argsort(clients, kind="stable"), split_offsets(sizes))


def split_offsets(sizes: Sequence[int] | Indices) -> Indices:
    """Where the examples of each client begin, and where the last ones end."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
