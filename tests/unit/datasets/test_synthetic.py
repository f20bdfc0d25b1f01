import tracemalloc
from itertools import pairwise

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedcome_ray import datasets
from fedcome_ray.datasets import synthetic


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


def test_a_clients_examples_do_not_depend_on_who_else_is_drawn() -> None:
    config = datasets.Synthetic(num_clients=50, examples_per_client=5)
    kept, drawn = synthetic.kept(config), synthetic.drawn(config)
    for side in ("train", "test"):
        whole, some = kept.side(side), drawn.side(side).of(np.array([31, 3, 32]))
        assert some.sizes[[3, 31, 32]].tolist() == whole.sizes[[3, 31, 32]].tolist()
        assert some.sizes.sum() == some.sizes[[3, 31, 32]].sum() == len(some.order)
        for client in (3, 31, 32):
            places = slice(*whole.offsets[client : client + 2])
            own = slice(*some.offsets[client : client + 2])
            assert np.array_equal(whole.examples.x[places], some.examples.x[own])
            assert np.array_equal(whole.examples.y[places], some.examples.y[own])
        assert np.array_equal(whole.labels(), drawn.side(side).labels())


def test_pooled_places_are_drawn_with_the_clients_that_own_them() -> None:
    config = datasets.Synthetic(num_clients=50, examples_per_client=5)
    whole, drawn = synthetic.kept(config).train, synthetic.drawn(config).train
    for start in range(0, whole.num_examples, 37):
        some, first = drawn.at(start, start + 37)
        found = some.examples.x[start - first : start - first + 37]
        assert np.array_equal(found, whole.examples.x[start : start + 37])
        assert len(some.order) < 37 + 2 * whole.sizes.max()


def test_a_million_synthetic_clients_are_a_few_vectors() -> None:
    config = datasets.Synthetic(num_clients=1_000_000)
    tracemalloc.start()
    population = datasets.load(config)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < synthetic.CLIENT_BYTES * config.num_clients
    assert datasets.describe(config).are_drawn
    assert datasets.describe(config).num_train == population.train.num_examples > 4e7


def test_a_large_population_is_kept_if_examples_are_held_out(monkeypatch) -> None:
    monkeypatch.setattr(synthetic, "LARGEST_KEPT", 0)
    config = datasets.Synthetic(num_clients=20, examples_per_client=10)
    assert datasets.load(config).train.draw is not None
    assert datasets.load(config.model_copy(update={"validation": 0.5})).train.draw is None
