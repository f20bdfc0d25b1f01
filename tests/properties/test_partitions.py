import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcome_ray.datasets.partitions import (
    ClassesPerClient,
    Dirichlet,
    Iid,
    Iid5,
    Ring2,
    SortedShards,
    label_matched,
    partition,
)
from fedcome_ray.datasets.population import Labels

# The machine may be busy: time is no property of a partition.
unhurried = settings(deadline=None)
seeds = st.integers(0, 2**32 - 1)
populations = st.tuples(
    st.lists(st.integers(30, 80), min_size=2, max_size=8), st.integers(8, 20), seeds
)
configs = st.one_of(
    st.builds(ClassesPerClient, classes=st.integers(1, 3)),
    st.builds(SortedShards, per_client=st.integers(1, 3)),
    st.builds(Dirichlet, alpha=st.floats(0.01, 100)),
    st.builds(Iid),
)


def shuffled_labels(class_sizes, seed) -> Labels:
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    return np.random.default_rng(seed).permutation(labels)


@unhurried
@given(populations, configs)
def test_partitions_are_disjoint_and_complete_and_leave_nobody_out(population, config) -> None:
    class_sizes, num_clients, seed = population
    labels = shuffled_labels(class_sizes, seed)
    clients = partition(config, labels, num_clients, seed)
    assert len(clients) == num_clients
    assert min(len(own) for own in clients) > 0
    assert sorted(np.concatenate(clients).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("config", [Ring2(), Iid5()])
@unhurried
@given(seed=seeds)
def test_superclass_partitions_are_disjoint_and_complete(config, seed) -> None:
    labels = shuffled_labels([6] * 100, seed)
    clients = partition(config, labels, 100, seed)
    assert [len(own) for own in clients] == [6] * 100
    assert sorted(np.concatenate(clients).tolist()) == list(range(600))


@unhurried
@given(populations, st.integers(1, 3))
def test_clients_hold_at_most_the_given_number_of_classes(population, classes) -> None:
    class_sizes, num_clients, seed = population
    labels = shuffled_labels(class_sizes, seed)
    clients = partition(ClassesPerClient(classes=classes), labels, num_clients, seed)
    assert max(len(set(labels[own])) for own in clients) <= classes


@unhurried
@given(populations, configs)
def test_a_partition_is_a_function_of_its_seed(population, config) -> None:
    class_sizes, num_clients, seed = population
    labels = shuffled_labels(class_sizes, seed)
    first, again = (partition(config, labels, num_clients, seed) for _ in range(2))
    assert all(map(np.array_equal, first, again))


@unhurried
@given(populations, configs)
def test_label_matched_test_sets_have_only_classes_that_are_trained_on(population, config) -> None:
    class_sizes, num_clients, seed = population
    labels = shuffled_labels(class_sizes, seed)
    test_labels = shuffled_labels(class_sizes, seed + 1)
    trained = [labels[own] for own in partition(config, labels, num_clients, seed)]
    tested = label_matched(trained, test_labels)
    assert sorted(np.concatenate(tested).tolist()) == list(range(len(test_labels)))
    for own, matched in zip(trained, tested, strict=True):
        assert set(test_labels[matched]) <= set(own)
