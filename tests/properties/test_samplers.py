import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcome_ray import samplers
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.samplers import SimilaritySampler
from fedcome_ray.samplers import table as similarity

configs = st.builds(
    SimilaritySampler,
    greedy_fraction=st.floats(0, 1),
    ema=st.floats(0, 0.99),
    moves=st.integers(1, 50),
    include_diagonal=st.booleans(),
    warmup=st.integers(0, 2),
)


@st.composite
def populations(draw: st.DrawFn) -> tuple[int, int]:
    num_clients = draw(st.integers(1, 30))
    return num_clients, draw(st.integers(1, num_clients))


def play(config, population, seed, table) -> tuple[list[Cohort], similarity.Table]:
    """A few rounds with random updates: the cohorts, and the table after them."""
    sampler, cohorts = samplers.build(config), []
    for round_index in range(4):
        rng = np.random.default_rng([seed, round_index])
        cohort = sampler.sample(table, population[1], rng)
        ones = torch.ones((len(cohort), 1))
        updates = torch.from_numpy(rng.standard_normal((len(cohort), 3)))
        table = sampler.learn(table, cohort, Report(updates, ones, ones, ones))
        cohorts.append(cohort)
    return cohorts, table


def dense(num_clients: int) -> similarity.DenseTable:
    return similarity.DenseTable(0, np.zeros((num_clients, num_clients)))


def sparse(num_clients: int) -> similarity.SparseTable:
    return similarity.SparseTable(0, num_clients, np.zeros(0, np.int64), np.zeros(0))


@given(config=configs, population=populations(), seed=st.integers(0, 2**32))
def test_cohorts_are_increasing_clients_of_the_size_asked_for(config, population, seed) -> None:
    cohorts, _ = play(config, population, seed, dense(population[0]))
    for cohort in cohorts:
        assert len(set(cohort)) == population[1]
        assert list(cohort) == sorted(cohort)
        assert set(cohort) <= set(range(population[0]))


@given(config=configs, population=populations(), seed=st.integers(0, 2**32))
def test_the_sparse_table_gives_the_cohorts_and_values_of_the_dense_one(
    config, population, seed
) -> None:
    everybody = np.arange(population[0])
    cohorts, table = play(config, population, seed, dense(population[0]))
    same_cohorts, same_table = play(config, population, seed, sparse(population[0]))
    assert same_cohorts == cohorts
    assert (similarity.among(same_table, everybody) == table.values).all()


@given(config=configs, population=populations(), seed=st.integers(0, 2**32))
def test_the_table_holds_averages_of_cosines(config, population, seed) -> None:
    cohorts, table = play(config, population, seed, dense(population[0]))
    counts = np.bincount(
        [client for cohort in cohorts for client in cohort], minlength=len(table.values)
    )
    assert np.allclose(table.values, table.values.T, atol=1e-15)
    assert np.abs(table.values).max() <= 1
    assert np.diag(table.values) == pytest.approx(1 - config.ema**counts)


@given(config=configs, population=populations(), seed=st.integers(0, 2**32))
def test_pairs_that_did_not_take_part_keep_their_value(config, population, seed) -> None:
    _, table = play(config, population, seed, dense(population[0]))
    cohort = np.arange(0, population[0], 2)
    after = similarity.blend(table, cohort, np.eye(len(cohort)), config.ema)
    untouched = np.ones_like(table.values, dtype=bool)
    untouched[np.ix_(cohort, cohort)] = False
    assert (after.values[untouched] == table.values[untouched]).all()


@pytest.mark.parametrize("variant", ["clean", "official"])
def test_before_anything_is_known_all_clients_are_equally_likely(variant) -> None:
    sampler = samplers.build(SimilaritySampler(variant=variant))
    counts = np.zeros(10)
    num_draws = 2000
    for seed in range(num_draws):
        counts[list(sampler.sample(dense(10), 4, np.random.default_rng(seed)))] += 1
    deviation = (counts - 0.4 * num_draws) / np.sqrt(num_draws * 0.4 * 0.6)
    assert np.abs(deviation).max() < 4


@pytest.mark.parametrize("variant", ["clean", "official"])
def test_annealed_cohorts_are_less_similar_than_random_ones(variant) -> None:
    classes = np.random.default_rng(0).integers(10, size=(100, 2))
    shared = (classes[:, :, None, None] == classes.T[None, None].transpose(0, 1, 3, 2)).sum((1, 3))
    table = similarity.DenseTable(1, np.where(np.eye(100, dtype=bool), 1.0, shared / 2 - 0.1))
    energies = {}
    for fraction in (0.0, 1.0):
        sampler = samplers.build(SimilaritySampler(greedy_fraction=fraction, variant=variant))
        cohorts = [sampler.sample(table, 14, np.random.default_rng(seed)) for seed in range(20)]
        energies[fraction] = np.mean([table.values[np.ix_(c, c)].sum() for c in cohorts])
    assert energies[1.0] < energies[0.0] - 5
