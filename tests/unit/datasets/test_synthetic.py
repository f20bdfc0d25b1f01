import tracemalloc
from itertools import pairwise

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedcome_ray import datasets


def test_synthetic_clients_differ_as_asked() -> None:
    """With alpha = beta = 0 all clients' inputs have mean 0; with beta = 5 their means differ."""

    def spread(beta) -> float:
        config = datasets.Synthetic(alpha=0, beta=beta, num_clients=50, examples_per_client=200)
        side = datasets.load(config).train
        means = np.add.reduceat(side.examples.x, side.offsets[:-1]) / side.sizes[:, None]
        return means.mean(axis=1).std()

    assert spread(0.0) < 0.3
    assert spread(5.0) > 3


def test_synthetic_inputs_have_the_published_variances() -> None:
    config = datasets.Synthetic(num_clients=20, examples_per_client=2000)
    side = datasets.load(config).train
    largest = int(side.sizes.argmax())
    own = side.examples.x[side.offsets[largest] : side.offsets[largest + 1]]
    assert np.allclose(own.var(axis=0), np.arange(1, 61) ** -1.2, rtol=0.25)


def test_synthetic_labels_are_those_of_one_linear_model_per_client() -> None:
    """A client's own examples are linearly separable; those of several clients are not."""
    config = datasets.Synthetic(
        alpha=0, beta=0, num_clients=4, examples_per_client=200, num_features=5, num_classes=2
    )
    side = datasets.load(config).train
    fit = LogisticRegression(C=1e6, max_iter=10_000)
    x, y, _ = side.examples
    scores = [
        fit.fit(x[start:end], y[start:end]).score(x[start:end], y[start:end])
        for start, end in pairwise(side.offsets)
        if len(set(y[start:end])) == 2
    ]
    assert min(scores) > 0.99
    assert fit.fit(x, y).score(x, y) < 0.95


def test_synthetic_data_is_a_function_of_its_seed() -> None:
    first, again, other = (
        datasets.load(datasets.Synthetic(seed=seed, num_clients=10)) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.train.examples.x, again.train.examples.x)
    assert np.array_equal(first.test.examples.y, again.test.examples.y)
    assert first.train.examples.x[0, 0] != other.train.examples.x[0, 0]


def test_many_synthetic_clients_cost_little_more_than_their_examples() -> None:
    config = datasets.Synthetic(num_clients=10_000, examples_per_client=20)
    tracemalloc.start()
    population = datasets.load(config)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    examples = population.train.examples.x.nbytes + population.test.examples.x.nbytes
    assert peak < 2 * examples
