"""Datasets by name: from a configuration to the population it describes."""

from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.partition import ClassesPerClient, PartitionConfig, partition
from fedcome_ray.population import Examples, Population, split, split_in_order
from fedcome_ray.randomness import Stream, generator


class Digits(Hyperparameters):
    """1797 handwritten digits of 8x8 pixels, bundled with scikit-learn: real, no download."""

    dataset: Literal["digits"] = "digits"
    partition: PartitionConfig = Field(default_factory=ClassesPerClient)
    num_clients: PositiveInt = 50
    seed: NonNegativeInt = 1
    """Of the partition; separate from the trial's seed."""


class Synthetic(Hyperparameters):
    """Synthetic(alpha, beta) after FedProx: each client has its own softmax regression.

    Clients differ in their models by `alpha` and in their inputs by `beta`.
    """

    dataset: Literal["synthetic"] = "synthetic"
    alpha: NonNegativeFloat = 1.0
    beta: NonNegativeFloat = 1.0
    num_clients: PositiveInt = 100
    examples_per_client: PositiveInt = 50
    """Mean of the clients' training sizes, which follow a log-normal law."""
    num_features: PositiveInt = 60
    num_classes: PositiveInt = 10
    seed: NonNegativeInt = 1


DataConfig = Annotated[Digits | Synthetic, Field(discriminator="dataset")]


class Shape(NamedTuple):
    """What can be said of a dataset without reading it."""

    feature_shape: tuple[int, ...]
    num_classes: int
    num_train: int
    num_test: int
    num_clients: int


def describe(config: Digits | Synthetic) -> Shape:
    """The size of the population that a configuration describes."""
    if isinstance(config, Synthetic):
        total = config.num_clients * config.examples_per_client
        return Shape(
            (config.num_features,), config.num_classes, total, total // 5, config.num_clients
        )
    return Shape((1, 8, 8), 10, 1438, 359, config.num_clients)


def load(config: Digits | Synthetic) -> Population:
    """The population that a configuration describes."""
    if isinstance(config, Synthetic):
        return _synthetic(config)
    return _digits(config)


def _digits(config: Digits) -> Population:
    from sklearn.datasets import load_digits  # slow to import

    pixels, labels = load_digits(return_X_y=True)
    x = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels.astype(np.int64)
    # Every fifth image is for testing: the file is ordered by writer, a cut would separate them.
    is_test = np.arange(len(y)) % 5 == 4
    train = Examples(x[~is_test], y[~is_test])
    test = Examples(x[is_test], y[is_test])
    clients = partition(config.partition, train.y, config.num_clients, config.seed)
    slices = np.array_split(np.arange(len(test.y)), config.num_clients)
    return Population(split(train, clients), split(test, slices), num_classes=10)


def _synthetic(config: Synthetic) -> Population:
    rng = generator(config.seed, Stream.DATA)
    n, features, classes = config.num_clients, config.num_features, config.num_classes
    sizes = rng.lognormal(0.0, 1.0, n)
    sizes = np.maximum(4, sizes / sizes.mean() * config.examples_per_client).astype(np.int64)
    test_sizes = np.maximum(1, sizes // 5)
    totals = sizes + test_sizes
    owner = np.repeat(np.arange(n), totals)

    model_mean = rng.normal(0.0, config.alpha, n)  # u_k
    input_mean = rng.normal(0.0, config.beta, n)  # B_k
    centre = rng.normal(input_mean[:, None], 1.0, (n, features)).astype(np.float32)  # v_k
    scale = np.arange(1, features + 1, dtype=np.float32) ** -0.6  # Sigma_jj = j^-1.2
    x = centre[owner] + scale * rng.standard_normal((len(owner), features), dtype=np.float32)
    y = np.empty(len(owner), dtype=np.int64)
    ends = np.cumsum(totals)
    for client, (start, end) in enumerate(zip(ends - totals, ends, strict=True)):
        weight = rng.normal(model_mean[client], 1.0, (features, classes)).astype(np.float32)
        bias = rng.normal(model_mean[client], 1.0, classes).astype(np.float32)
        y[start:end] = np.argmax(x[start:end] @ weight + bias, axis=1)
    # Of each client's examples, the last ones are for testing.
    position = np.arange(len(owner)) - np.repeat(ends - totals, totals)
    is_test = position >= sizes[owner]
    return Population(
        split_in_order(Examples(x[~is_test], y[~is_test]), sizes),
        split_in_order(Examples(x[is_test], y[is_test]), test_sizes),
        classes,
    )
