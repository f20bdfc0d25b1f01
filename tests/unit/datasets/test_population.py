import numpy as np
import pytest

from fedcome_ray.datasets.population import (
    Examples,
    Population,
    Scale,
    digest,
    split,
    split_by_client,
    split_in_order,
)


@pytest.fixture
def examples() -> Examples:
    return Examples(np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2]))


def owned(side) -> list[list[int]]:
    return [part.tolist() for part in np.split(side.order, side.offsets[1:-1])]


def test_a_digest_knows_all_that_models_are_given(examples) -> None:
    x, y, _ = examples
    one = np.float32(1)
    others = [
        Examples(x.reshape(3, 4), y),
        Examples(x.view(np.int32), y),
        Examples(x, y[::-1]),
        Examples(x, y, Scale(one, one)),
        Examples(x, y, Scale(one, -one)),
    ]
    assert digest(Examples(np.asfortranarray(x), y.copy())) == digest(examples)
    assert len({digest(examples), *map(digest, others)}) == 6


def test_clients_own_the_examples_they_are_given(examples) -> None:
    side = split(examples, [np.array([5, 0]), np.array([3]), np.array([1, 2, 4])])
    assert owned(side) == [[5, 0], [3], [1, 2, 4]]
    assert side.sizes.tolist() == [2, 1, 3]


def test_examples_in_order_are_cut_at_the_sizes(examples) -> None:
    assert owned(split_in_order(examples, np.array([1, 3, 2]))) == [[0], [1, 2, 3], [4, 5]]


def test_numbers_beside_the_examples_name_their_clients(examples) -> None:
    side = split_by_client(examples, np.array([2, 0, 2, 1, 0, 2]), num_clients=3)
    assert owned(side) == [[1, 4], [3], [0, 2, 5]]


def test_examples_are_pooled_and_not_copied(examples) -> None:
    assert split(examples, [np.arange(6)]).examples is examples


def test_a_population_knows_its_sizes_and_sides(examples) -> None:
    train = split_in_order(examples, np.array([3, 3]))
    test = split_in_order(examples, np.array([2, 4]))
    population = Population(train, test, num_classes=3)
    assert population.num_clients == 2
    assert population.feature_shape == (2,)
    assert population.side("train") is train
    assert population.side("test") is test
