"""Who is there, and who gets through: frequencies, and independence of everything but the draw."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedcome_ray.clients.availability import present, shares, steps_taken
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.experiments.trial import Availability, Trial

SEED, ROUND = 3, 5
MANY = tuple(range(20_000))
CLIENTS = np.array(MANY)


def test_by_default_everybody_is_there_and_gets_through() -> None:
    assert present(Availability(), SEED, ROUND, MANY) == MANY
    assert (shares(Availability(), SEED, ROUND, CLIENTS) == 1).all()


def test_nobody_can_be_asked() -> None:
    assert present(Availability(rate=0.5), SEED, ROUND, ()) == ()


def test_as_many_are_there_as_the_rate_says() -> None:
    found = len(present(Availability(rate=0.9), SEED, ROUND, MANY))
    assert stats.binomtest(found, len(MANY), 0.9).pvalue > 1e-6


def test_stragglers_are_as_many_as_the_rate_says_and_take_uniform_shares() -> None:
    chances = Availability(rate=0.5, straggler_rate=0.3, least_share=0.2)
    there = np.array(present(chances, SEED, ROUND, MANY))
    found = shares(chances, SEED, ROUND, there)  # being there says nothing of getting through
    less = found[found < 1]
    assert stats.binomtest(len(less), len(there), 0.3).pvalue > 1e-6
    assert stats.kstest(less, stats.uniform(0.2, 0.8).cdf).pvalue > 1e-6


def test_clients_and_rounds_fail_on_their_own() -> None:
    is_there = np.zeros((400, 200))
    for number in range(len(is_there)):
        is_there[number, list(present(Availability(rate=0.7), SEED, number, MANY[:200]))] = 1
    for one, other in ((is_there[:, :-1], is_there[:, 1:]), (is_there[:-1], is_there[1:])):
        assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > 1e-6


def test_whoever_else_is_asked_does_not_matter() -> None:
    chances = Availability(rate=0.5, straggler_rate=0.5)
    some = MANY[5:500:7]
    assert present(chances, SEED, ROUND, some) == tuple(
        client for client in present(chances, SEED, ROUND, MANY) if client in some
    )
    every = shares(chances, SEED, ROUND, CLIENTS)
    assert np.array_equal(shares(chances, SEED, ROUND, np.array(some)), every[list(some)])


@pytest.mark.parametrize(
    ("share", "num_steps", "taken"),
    [(1, 7, 7), (0.99, 7, 6), (0.5, 7, 3), (0.01, 7, 1), (0.9, 1, 1)],
)
def test_a_straggler_takes_whole_steps_and_one_at_least(share, num_steps, taken) -> None:
    assert steps_taken(np.array([share]), np.array([num_steps])).tolist() == [taken]


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_straggler_is_trained_as_a_client_that_was_given_fewer_steps(method) -> None:
    sizes = (40, 25, 40, 3, 60, 40)
    settings = {"method": {"name": method}, "model": {"name": "mlp", "hidden": [5]}}
    local = {"batch_size": 5, "momentum": 0.5, "lr_decay": 1.0, "lr": 0.25}
    chances = Availability(straggler_rate=0.8)
    population, everybody = random_population(sizes, (6,), 3), tuple(range(len(sizes)))

    def train(**changes) -> object:
        trial = Trial.model_validate({**settings, "local": local, **changes})
        shard = Shard(trial, population)
        return shard.train(first_message(shard, len(sizes)), everybody, ROUND)

    report = train(availability=chances.model_dump())
    full = -(-np.array(sizes) // 5)
    share = shares(chances, 0, ROUND, np.arange(len(sizes)))  # the trial's seed is 0
    taken = steps_taken(share, full)
    assert (taken < full).any()
    for client, steps in enumerate(taken.tolist()):
        expected = train(local={**local, "steps": steps})
        assert torch.equal(report.update[client], expected.update[client])
        assert torch.equal(report.total_lr[client], expected.total_lr[client])
