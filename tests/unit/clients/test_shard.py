"""What a shard does when memory runs out, and with examples that are kept as bytes."""

import logging
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Examples, Population, Scale, split_in_order
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments.trial import Trial

SIZES = (5,) * 8
EVERYBODY = tuple(range(len(SIZES)))


@dataclass
class Cramped:
    """A trainer on a device that has room for so many clients at a time."""

    trainer: object
    room: int
    attempts: list[int]
    static_steps: None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.trainer, name)

    def train(self, clients, *args) -> object:
        self.attempts.append(len(clients))
        if len(clients) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.trainer.train(clients, *args)


def cramped_shard(room: int, method: str = "scaffold") -> tuple[Shard, list[int]]:
    trial = Trial.model_validate({"model": {"name": "logistic"}, "method": {"name": method}})
    shard = Shard(trial, random_population(SIZES, (6,), 3))
    attempts: list[int] = []
    shard.trainer = Cramped(shard.trainer, room, attempts)
    return shard, attempts


def test_without_memory_for_a_block_its_halves_are_trained(caplog) -> None:
    roomy, _ = cramped_shard(room=8)
    shard, attempts = cramped_shard(room=3)
    received = first_message(shard, len(SIZES))
    for number in range(2):
        expected = roomy.train(received, EVERYBODY, number)
        with caplog.at_level(logging.WARNING):
            found = shard.train(received, EVERYBODY, number)
        assert torch.equal(found.update, expected.update)
    assert attempts == [8, 4, *[2] * 8]
    assert shard.states.export().keys() == roomy.states.export().keys()
    assert "no memory for 8 clients" in caplog.text


def test_each_size_is_said_and_tried_once_a_round(caplog) -> None:
    shard, attempts = cramped_shard(room=2)
    received = first_message(shard, len(SIZES))
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            shard.train(received, EVERYBODY, number)
    assert len(caplog.records) == 2
    assert attempts.count(8) == attempts.count(4) == 1


def test_no_memory_for_a_single_client_is_an_error_that_says_what_to_do() -> None:
    shard, _ = cramped_shard(room=0)
    with pytest.raises(FedcomeError, match=r"no memory for a single client .* --gpus-per-shard"):
        shard.train(first_message(shard, len(SIZES)), EVERYBODY, 0)


@pytest.mark.parametrize("model", ["mlp", "conv2"])
def test_bytes_with_a_scale_are_the_numbers_that_they_stand_for(model: str) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (13, 2, 10, 10), dtype=np.uint8)
    labels = rng.integers(0, 3, 13)
    factor, shift = rng.random((2, 2, 1, 1), dtype=np.float32)
    numbers = np.float32(factor) * pixels + shift
    populations = [
        Population(*[split_in_order(examples, np.array([6, 4, 3]))] * 2, 3)
        for examples in (Examples(numbers, labels), Examples(pixels, labels, Scale(factor, shift)))
    ]
    trial = Trial.model_validate({"model": {"name": model}, "local": {"batch_size": 4}})
    shards = [Shard(trial, population) for population in populations]
    received = first_message(shards[0], 3)
    plain, scaled = (shard.train(received, (0, 1, 2), 0).update for shard in shards)
    assert torch.equal(plain, scaled)
    plain, scaled = (shard.evaluate(received.params, [0]).loss for shard in shards)
    assert np.array_equal(plain, scaled)


def test_labels_may_lie_apart_in_memory() -> None:
    """As a slice of others does; compiled code reads them one after the other."""
    whole = random_population([6, 9, 5], (7,), 3)

    def apart(population: Population) -> Population:
        sides = []
        for split in (population.train, population.test):
            x, y, scale = split.examples
            spread = np.full(2 * len(y), -1)
            spread[::2] = y
            sides.append(split._replace(examples=Examples(x, spread[::2], scale)))
        return population._replace(train=sides[0], test=sides[1])

    trial = Trial.model_validate({"model": {"name": "mlp"}})
    found = []
    for population in (whole, apart(whole)):
        shard = Shard(trial, population)
        received = first_message(shard, 3)
        update = shard.train(received, (0, 1, 2), 0).update
        found.append((update, shard.evaluate(received.params, [0])))
    (update, scores), (update_apart, scores_apart) = found
    assert torch.equal(update, update_apart)
    assert np.array_equal(scores.loss, scores_apart.loss)
    assert np.array_equal(scores.correct, scores_apart.correct)
