"""What a node takes from files of its own: the same to the last byte, or nothing."""

from pathlib import Path

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets.population import Side, digest
from fedcome_ray.runtime.populations import read_here


def write(path: Path, seed: int) -> None:
    draws = np.random.default_rng(seed)
    sides = {"train": 40, "test": 8}
    x = {f"x_{side}": draws.normal(size=(number, 3)) for side, number in sides.items()}
    y = {f"y_{side}": np.arange(number) % 2 for side, number in sides.items()}
    clients = {f"client_{side}": np.arange(number) % 4 for side, number in sides.items()}
    np.savez(path, allow_pickle=False, **x, **y, **clients)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "own.npz", seed=0)
    return tmp_path / "own.npz"


def wanted(config: datasets.DatasetSettings) -> dict[Side, str]:
    population = datasets.load(config)
    return {"train": digest(population.train.examples), "test": digest(population.test.examples)}


def test_the_same_examples_are_taken(file: Path) -> None:
    config = datasets.parse(f"npz:{file}")
    train, test = read_here(config, None, wanted(config))
    population = datasets.load(config)
    assert train is not None
    assert test is not None
    np.testing.assert_array_equal(train.x, population.train.examples.x)
    np.testing.assert_array_equal(test.y, population.test.examples.y)


def test_only_what_is_wanted_is_taken(file: Path) -> None:
    config = datasets.parse({"dataset": f"npz:{file}", "validation": 0.25})
    train, test = read_here(config, None, {"test": wanted(config)["test"]})
    assert train is None
    assert test is not None
    assert len(test.y) == 40  # held out of the training examples


def test_other_contents_are_not_taken(file: Path) -> None:
    config = datasets.parse(f"npz:{file}")
    expected = wanted(config)
    write(file, seed=1)
    assert read_here(config, None, expected) == (None, None)


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_files_that_are_missing_or_damaged_are_not_taken(file: Path, content: bytes | None) -> None:
    config = datasets.parse(f"npz:{file}")
    expected = wanted(config)
    file.unlink() if content is None else file.write_bytes(content)
    assert read_here(config, None, expected) == (None, None)
