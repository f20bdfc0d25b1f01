"""The sharding rule: what is split can be joined again, in the same order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcome_ray.clients.evaluation import CHUNK
from fedcome_ray.clients.rehearsal import random_population
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.sharding import (
    join_states,
    owners,
    part_of,
    split_chunks,
    split_cohort,
    split_states,
)


@given(num_clients=st.integers(1, 50), num_shards=st.integers(1, 8), data=st.data())
def test_every_client_of_a_cohort_is_in_one_shard_the_one_that_owns_it(
    num_clients: int, num_shards: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.integers(0, num_clients - 1), min_size=1))
    cohort = tuple(sorted(chosen))
    parts = split_cohort(cohort, num_clients, num_shards)
    assert len(parts) == num_shards
    assert tuple(client for part in parts for client in part) == cohort
    for shard, part in enumerate(parts):
        assert all(owners(np.array(part), num_clients, num_shards) == shard)


@given(num_clients=st.integers(1, 30), num_shards=st.integers(1, 6))
def test_states_are_split_like_cohorts_and_joined_again(num_clients: int, num_shards: int) -> None:
    clients = np.arange(num_clients)
    states = {"ids": clients, "control": np.arange(2 * num_clients).reshape(-1, 2)}
    parts = split_states(states, num_clients, num_shards)
    cohorts = split_cohort(tuple(clients.tolist()), num_clients, num_shards)
    assert [tuple(part["ids"].tolist()) for part in parts] == cohorts
    joined = join_states(parts)
    assert all(np.array_equal(joined[name], states[name]) for name in states)


def test_shards_are_equal_to_within_one_client() -> None:
    sizes = np.bincount(owners(np.arange(100), 100, 3))
    assert sizes.max() - sizes.min() <= 1


def test_without_states_every_shard_gets_none() -> None:
    assert split_states({}, 10, 3) == [{}, {}, {}]


@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=8),
    num_shards=st.integers(1, 6),
    evaluates_train=st.booleans(),
)
def test_a_shard_has_the_examples_of_its_clients_and_those_that_it_scores(
    sizes: list[int], num_shards: int, evaluates_train: bool
) -> None:
    population = random_population(sizes, (1,), 2)
    trial = Trial(eval_train_every=1 if evaluates_train else None)
    places = np.arange(sum(sizes))
    owner = np.repeat(owners(np.arange(len(sizes)), len(sizes), num_shards), sizes)
    for shard in range(num_shards):
        part = part_of(population, trial, shard, num_shards)
        scored = np.isin(places // CHUNK, split_chunks(population.test, num_shards)[shard])
        needed = owner == shard
        np.testing.assert_array_equal(places[part.test], places[scored])
        if not evaluates_train:
            np.testing.assert_array_equal(places[part.train], places[needed])
        assert set(places[needed | (scored & evaluates_train)]) <= set(places[part.train])
