"""Synthetic(alpha, beta) of Li et al., Federated Optimization in Heterogeneous Networks (FedProx).

https://arxiv.org/abs/1812.06127, section 5.1. As in the authors' code, `alpha` and `beta` are
standard deviations, and a client's weights and biases share their mean.
"""

from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.population import (
    Description,
    Examples,
    Indices,
    Population,
    Side,
    Split,
    split_drawn,
    split_offsets,
)
from fedcome_ray.numerics import memory

LARGEST_KEPT = 2**30
"""Bytes of examples. Beyond, they are drawn anew wherever they are needed: that takes a shard about
50 microseconds a client and round, and no memory in any process."""
DRAWN_TOGETHER = 1024  # clients whose examples are in memory at once, at least
CLIENT_BYTES = 64  # in vectors: sizes, and where examples begin


class Synthetic(DatasetSettings):
    """Synthetic(alpha, beta) after FedProx: each client has its own softmax regression.

    Clients differ in their models by `alpha` and in their inputs by `beta`.
    """

    dataset: Literal["synthetic"] = "synthetic"
    alpha: NonNegativeFloat = 1.0
    """How much clients differ in their models."""
    beta: NonNegativeFloat = 1.0
    """How much clients differ in their inputs."""
    num_clients: PositiveInt = 100
    """How many clients there are."""
    examples_per_client: PositiveInt = 50
    """Mean of the clients' training sizes, which follow a log-normal law; each has at least 4."""
    num_features: PositiveInt = 60
    """Length of an example."""
    num_classes: PositiveInt = 10
    """How many labels there are."""
    seed: NonNegativeInt = 1
    """Of the examples; separate from the trial's seed."""


class Sizes(NamedTuple):
    """Examples of each client."""

    train: Indices
    test: Indices


def build(config: Synthetic, _data_dir: Path | None) -> Population:
    """All clients, with their examples if these are not too many."""
    return kept(config) if _is_kept(config) else drawn(config)


def kept(config: Synthetic) -> Population:
    """Clients whose examples are in memory."""
    train, test = (side.of(np.arange(config.num_clients)) for side in _sides(config))
    return Population(train, test, config.num_classes)


def drawn(config: Synthetic) -> Population:
    """The same clients, whose examples are drawn where they are needed, to the same bits."""
    train, test = _sides(config)
    return Population(train, test, config.num_classes)


def _sides(config: Synthetic) -> tuple[Split, Split]:
    sizes = draw_sizes(config)
    return (
        split_drawn(partial(draw, config, sizes, "train"), sizes.train),
        split_drawn(partial(draw, config, sizes, "test"), sizes.test),
    )


def draw_sizes(config: Synthetic) -> Sizes:
    """Log-normal training sizes of the wanted mean, and a fifth of that for testing."""
    _check_memory(config)
    sizes = _generator(config).lognormal(0.0, 1.0, config.num_clients)
    train = np.maximum(4, sizes / sizes.mean() * config.examples_per_client).astype(np.int64)
    return Sizes(train, np.maximum(1, train // 5))


def draw(config: Synthetic, sizes: Sizes, side: Side, clients: Indices) -> Examples:
    """The examples of these clients, one after the other; a client's depend on nobody else."""
    bounds = split_offsets((sizes.test if side == "test" else sizes.train)[clients])
    x = np.empty((bounds[-1], config.num_features), np.float32)
    y = np.empty(len(x), np.int64)
    # Variances of j^-1.2.
    deviations = np.arange(1, config.num_features + 1, dtype=np.float32) ** -0.6
    for client, start, end in zip(clients.tolist(), bounds[:-1], bounds[1:], strict=True):
        rng = _generator(config, client + 1)  # with a 0 it would be that of the sizes
        model, own = _draw_model(config, rng), x[start:end]
        if side == "train":  # after the test examples, which are fewer
            rng.standard_normal((sizes.test[client], config.num_features), dtype=np.float32)
        rng.standard_normal(out=own, dtype=np.float32)
        own *= deviations
        own += model.centre
        np.argmax(own @ model.weight + model.bias, axis=1, out=y[start:end])
    return Examples(x, y)


class Model(NamedTuple):
    """What makes a client's examples."""

    centre: NDArray[np.float32]  # v_k, [features]
    weight: NDArray[np.float32]  # W_k, [features, classes]
    bias: NDArray[np.float32]  # b_k, [classes]


def _draw_model(config: Synthetic, rng: np.random.Generator) -> Model:
    features, classes = config.num_features, config.num_classes
    model_mean, input_mean = rng.standard_normal(2, dtype=np.float32)  # u_k, B_k
    model_mean, input_mean = config.alpha * model_mean, config.beta * input_mean
    centre = rng.standard_normal(features, dtype=np.float32)
    weight = rng.standard_normal((features, classes), dtype=np.float32)
    bias = rng.standard_normal(classes, dtype=np.float32)
    return Model(centre + input_mean, weight + model_mean, bias + model_mean)


def _generator(config: Synthetic, *path: int) -> np.random.Generator:
    from fedcome_ray.numerics.randomness import Stream, generator  # imports PyTorch

    return generator(config.seed, Stream.DATA, *path)


def _is_kept(config: Synthetic) -> bool:
    """Also for validation, which takes examples by their labels."""
    return config.validation is not None or _bytes(config, config.num_clients) <= LARGEST_KEPT


def _bytes(config: Synthetic, num_clients: int) -> float:
    """Of the examples of so many clients, for training and testing."""
    return 4.8 * num_clients * max(4, config.examples_per_client) * (config.num_features + 2)


def _check_memory(config: Synthetic) -> None:
    """Refuse what cannot be drawn: vectors, a model, and the examples that are kept."""
    at_once = min(config.num_clients, DRAWN_TOGETHER)
    examples = _bytes(config, config.num_clients if _is_kept(config) else at_once)
    model = 4 * config.num_features * (config.num_classes + 1)
    memory.check_fits(
        CLIENT_BYTES * config.num_clients + model + examples,
        "data.num_clients, examples_per_client, num_features, num_classes: the examples",
    )


def describe(config: Synthetic) -> Description:
    sizes = draw_sizes(config)
    totals = int(sizes.train.sum()), int(sizes.test.sum())
    form = (config.num_features,), config.num_classes
    return Description(*form, *totals, config.num_clients, are_drawn=not _is_kept(config))


DATASET = Dataset(config=Synthetic, build=build, label="synthetic", describe=describe)
