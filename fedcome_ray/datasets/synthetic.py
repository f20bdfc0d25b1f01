"""Synthetic(alpha, beta) of Li et al., Federated Optimization in Heterogeneous Networks (FedProx).

https://arxiv.org/abs/1812.06127, section 5.1. As in the authors' code, `alpha` and `beta` are
standard deviations, and a client's weights and biases share their mean.
"""

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
    split_in_order,
)
from fedcome_ray.numerics import memory

BLOCK = 1024  # clients drawn together: bounds the memory for their models


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
    """Mean of the clients' training sizes, which follow a log-normal law."""
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


def generate(config: Synthetic, _data_dir: Path | None) -> Population:
    """Draw all clients, a block at a time."""
    rng = _generator(config)
    sizes = draw_sizes(config, rng)
    sides = [split_in_order(_empty(int(own.sum()), config.num_features), own) for own in sizes]
    for start in range(0, config.num_clients, BLOCK):
        block = range(start, min(start + BLOCK, config.num_clients))
        models = _draw_models(config, len(block), rng)
        for side in sides:
            bounds = side.offsets[block.start : block.stop + 1]
            own = slice(bounds[0], bounds[-1])
            _fill(side.examples.x[own], side.examples.y[own], bounds - bounds[0], models, rng)
    train, test = sides
    return Population(train, test, config.num_classes)


def _generator(config: Synthetic) -> np.random.Generator:
    from fedcome_ray.numerics.randomness import Stream, generator  # imports PyTorch

    return generator(config.seed, Stream.DATA)


def draw_sizes(config: Synthetic, rng: np.random.Generator) -> Sizes:
    """Log-normal training sizes of the wanted mean, and a fifth of that for testing."""
    _check_memory(config)
    sizes = rng.lognormal(0.0, 1.0, config.num_clients)
    train = np.maximum(4, sizes / sizes.mean() * config.examples_per_client).astype(np.int64)
    return Sizes(train, np.maximum(1, train // 5))


def _check_memory(config: Synthetic) -> None:
    """Refuse what cannot be drawn: examples for training and testing, and a block's models."""
    num_examples = 1.2 * config.num_clients * max(4, config.examples_per_client)
    num_models = min(config.num_clients, BLOCK)
    size = num_examples * (config.num_features + 2) + num_models * config.num_features * (
        config.num_classes + 1
    )
    memory.check_fits(
        4 * size, "data.num_clients, examples_per_client, num_features, num_classes: the examples"
    )


def describe(config: Synthetic) -> Description:
    sizes = draw_sizes(config, _generator(config))
    totals = int(sizes.train.sum()), int(sizes.test.sum())
    return Description((config.num_features,), config.num_classes, *totals, config.num_clients)


class Models(NamedTuple):
    """What makes the examples of a block of clients."""

    centre: NDArray[np.float32]  # v_k, [clients, features]
    weight: NDArray[np.float32]  # W_k, [clients, features, classes]
    bias: NDArray[np.float32]  # b_k, [clients, classes]


def _draw_models(config: Synthetic, clients: int, rng: np.random.Generator) -> Models:
    features, classes = config.num_features, config.num_classes
    model_mean = rng.normal(0.0, config.alpha, clients).astype(np.float32)  # u_k
    input_mean = rng.normal(0.0, config.beta, clients).astype(np.float32)  # B_k

    def around(mean: NDArray[np.float32], *shape: int) -> NDArray[np.float32]:
        noise = rng.standard_normal((clients, *shape), dtype=np.float32)
        return noise + mean.reshape(-1, *(1 for _ in shape))

    return Models(
        around(input_mean, features),
        around(model_mean, features, classes),
        around(model_mean, classes),
    )


def _fill(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    bounds: Indices,
    models: Models,
    rng: np.random.Generator,
) -> None:
    """Inputs around the client's centre with variances j^-1.2, labelled by the client's model."""
    rng.standard_normal(out=x, dtype=np.float32)
    x *= np.arange(1, x.shape[1] + 1, dtype=np.float32) ** -0.6
    x += np.repeat(models.centre, np.diff(bounds), axis=0)
    logits = np.repeat(models.bias, np.diff(bounds), axis=0)
    for weight, start, end in zip(models.weight, bounds[:-1], bounds[1:], strict=True):
        logits[start:end] += x[start:end] @ weight
    np.argmax(logits, axis=1, out=y)


def _empty(num_examples: int, num_features: int) -> Examples:
    return Examples(
        np.empty((num_examples, num_features), np.float32), np.empty(num_examples, np.int64)
    )


DATASET = Dataset(config=Synthetic, build=generate, label="synthetic", describe=describe)
