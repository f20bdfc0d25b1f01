"""Held-out examples: of every client, from its training examples, in proportion to its classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedcome_ray import datasets
from fedcome_ray.datasets import parse
from fedcome_ray.datasets.population import Examples, Population, Split, split
from fedcome_ray.datasets.validation import hold_out


def owned(side: Split) -> list[list[int]]:
    return [part.tolist() for part in np.split(side.order, side.offsets[1:-1])]


def population_of(labels: list[list[int]]) -> Population:
    """Clients with these labels, their examples dealt in turns."""
    sizes = [len(own) for own in labels]
    total = sum(sizes)
    places = np.random.default_rng(0).permutation(total)
    clients = np.split(places, np.cumsum(sizes)[:-1])
    y = np.zeros(total, dtype=np.int64)
    for own, its_labels in zip(clients, labels, strict=True):
        y[own] = its_labels
    train = split(Examples(np.zeros((total, 1), np.float32), y), clients)
    return Population(train, train, 5)


@given(
    labels=st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=40), min_size=1, max_size=6),
    share=st.floats(0.001, 0.999),
)
def test_every_client_keeps_some_examples_and_is_tested_on_others(
    labels: list[list[int]], share: float
) -> None:
    whole = population_of(labels)
    held = hold_out(whole, share)
    for before, kept, tested in zip(*map(owned, (whole.train, held.train, held.test)), strict=True):
        assert kept
        assert tested
        assert [place for place in before if place not in tested] == kept  # in the same order
        assert set(before) == {*kept, *tested}
        assert abs(len(tested) - share * len(before)) <= 1
        y = whole.train.examples.y
        for label in range(5):
            number = sum(y[before] == label) * len(tested) / len(before)
            assert abs(sum(y[tested] == label) - number) <= 1


def npz(folder: Path) -> dict[str, Any]:
    clients = np.repeat(np.arange(3), [4, 9, 20])
    x, y = np.zeros((33, 2), np.float32), np.arange(33) % 2
    test = {"x_test": x[:6], "y_test": y[:6], "client_test": np.arange(6) % 3}
    path = folder / "own.npz"
    np.savez(path, x_train=x, y_train=y, client_train=clients, **test)
    return {"dataset": f"npz:{path}"}


@pytest.mark.parametrize("name", ["digits", "synthetic", "femnist", "npz"])
def test_it_goes_with_every_dataset(name: str, tmp_path: Path, leaf_folder: Path) -> None:
    settings = npz(tmp_path) if name == "npz" else {"dataset": name}
    whole = datasets.load(parse(settings), leaf_folder)
    held = datasets.load(parse({**settings, "validation": 0.25}), leaf_folder)
    assert held.num_clients == whole.num_clients
    assert np.array_equal(held.test.examples.x, whole.train.examples.x)  # no test example is left
    for before, kept, tested in zip(*map(owned, (whole.train, held.train, held.test)), strict=True):
        assert set(before) == {*kept, *tested}
        assert bool(tested) == (len(before) > 1)


def test_estimates_know_of_it() -> None:
    config = parse({"dataset": "digits", "validation": 0.2})
    described, held = datasets.describe(config), datasets.load(config)
    assert described.num_train + described.num_test == 1438
    assert described.num_test == pytest.approx(len(held.test.order), rel=0.1)


def test_a_single_example_is_trained_on() -> None:
    held = hold_out(population_of([[0, 1], [2]]), 0.1)
    assert held.train.sizes.tolist() == [1, 1]
    assert held.test.sizes.tolist() == [1, 0]


@pytest.mark.parametrize("share", [0, 1, -0.1, "half"])
@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_share_outside_of_zero_and_one_is_refused(name: str, share: object) -> None:
    with pytest.raises(ValidationError, match="validation"):
        parse({"dataset": name, "validation": share})
