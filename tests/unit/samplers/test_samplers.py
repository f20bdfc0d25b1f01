import itertools

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from fedcome_ray import samplers
from fedcome_ray.errors import ConfigError, DivergenceError
from fedcome_ray.methods.method import Report
from fedcome_ray.samplers import RandomSampler, SamplerConfig, SimilaritySampler, annealing
from fedcome_ray.samplers import table as similarity


def report_of(updates: list[list[float]]) -> Report:
    ones = torch.ones((len(updates), 1))
    return Report(torch.tensor(updates), loss=ones, total_lr=ones, num_examples=ones)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def table_of(values: np.ndarray) -> similarity.DenseTable:
    return similarity.DenseTable(1, values)


@pytest.fixture(params=["dense", "sparse"])
def form(request, monkeypatch) -> str:
    if request.param == "sparse":
        monkeypatch.setattr(similarity, "LARGEST_DENSE_POPULATION", 0)
    return request.param


def test_similarities_average_over_rounds_as_computed_by_hand(form) -> None:
    sampler = samplers.build(SimilaritySampler())
    table = sampler.init(3)
    table = sampler.learn(table, (0, 1), report_of([[1.0, 0.0], [1.0, 1.0]]))
    assert similarity.among(table, np.arange(3)) == pytest.approx(
        np.array([[0.5, 0.35355339, 0], [0.35355339, 0.5, 0], [0, 0, 0]])
    )
    table = sampler.learn(table, (0, 1), report_of([[1.0, 0.0], [-2.0, 0.0]]))
    table = sampler.learn(table, (0, 2), report_of([[0.0, 1.0], [3.0, 4.0]]))
    expected = [[0.875, -0.3232233, 0.4], [-0.3232233, 0.75, 0], [0.4, 0, 0.5]]
    values = similarity.among(table, np.arange(3))
    assert values == pytest.approx(np.array(expected))
    assert values.sum() == pytest.approx(2.27855339)
    assert table.num_rounds == 3


def test_a_part_of_the_table_keeps_the_order_asked_for(form) -> None:
    table = similarity.empty(4)
    cosines = np.array([[1.0, 0.2, 0.3], [0.2, 1.0, 0.4], [0.3, 0.4, 1.0]])
    table = similarity.blend(table, np.array([0, 2, 3]), cosines, ema=0.0)
    part = similarity.among(table, np.array([3, 1, 0]))
    assert part.tolist() == [[1.0, 0.0, 0.3], [0.0, 0.0, 0.0], [0.3, 0.0, 1.0]]


def test_zero_updates_are_similar_to_nobody(form) -> None:
    sampler = samplers.build(SimilaritySampler())
    table = sampler.learn(sampler.init(3), (0, 2), report_of([[0.0, 0.0], [1.0, 0.0]]))
    assert np.diag(similarity.among(table, np.arange(3))).tolist() == [0.0, 0.0, 0.5]


def test_updates_that_are_not_finite_do_not_enter_the_table() -> None:
    sampler = samplers.build(SimilaritySampler())
    with pytest.raises(DivergenceError, match="positions of the cohort: 1"):
        sampler.learn(sampler.init(3), (0, 2), report_of([[0.0, 0.0], [float("nan"), 0.0]]))


def test_learning_leaves_the_state_before_untouched(form) -> None:
    sampler = samplers.build(SimilaritySampler())
    before = sampler.learn(sampler.init(4), (0, 1), report_of([[1.0, 0.0], [1.0, 1.0]]))
    copy = similarity.among(before, np.arange(4)).copy()
    sampler.learn(before, (0, 1), report_of([[1.0, 0.0], [-1.0, 1.0]]))
    assert (similarity.among(before, np.arange(4)) == copy).all()


def test_the_form_of_the_table_follows_the_population() -> None:
    limit = similarity.LARGEST_DENSE_POPULATION
    assert isinstance(similarity.empty(limit), similarity.DenseTable)
    assert isinstance(similarity.empty(limit + 1), similarity.SparseTable)


TWO_GROUPS = np.where(np.equal.outer([0, 0, 1, 1], [0, 0, 1, 1]), 1.0, -0.2)


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_has_one_client_of_each_group(seed) -> None:
    sampler = samplers.build(SimilaritySampler(greedy_fraction=1.0))
    cohort = sampler.sample(table_of(TWO_GROUPS), 2, rng(seed))
    assert TWO_GROUPS[np.ix_(cohort, cohort)].sum() == pytest.approx(1.6)


@pytest.mark.parametrize("include_diagonal", [True, False])
def test_annealing_finds_the_least_similar_cohort(include_diagonal) -> None:
    values = np.corrcoef(rng(1).standard_normal((12, 5)))
    np.fill_diagonal(values, rng(2).uniform(0, 1, 12))
    counted = values if include_diagonal else values - np.diag(np.diag(values))
    energies = {
        subset: counted[np.ix_(subset, subset)].sum()
        for subset in itertools.combinations(range(12), 4)
    }
    config = SimilaritySampler(greedy_fraction=1.0, moves=3000, include_diagonal=include_diagonal)
    cohort = samplers.build(config).sample(table_of(values), 4, rng())
    assert energies[cohort] == pytest.approx(min(energies.values()))


def test_a_moves_change_of_energy_is_the_difference_of_the_energies() -> None:
    # With one move the better of two subsets is returned, so both outcomes are checked.
    values = np.corrcoef(rng(3).standard_normal((6, 4)))
    for leaving, entering in itertools.product(range(3), range(3)):
        start, others = np.arange(3), np.arange(3, 6)
        swapped = start.copy()
        swapped[leaving] = others[entering]
        best = annealing.anneal(
            values, start, others, np.array([[leaving]]), np.array([[entering]]), np.ones(1)
        )
        expected = min((start, swapped), key=lambda subset: values[np.ix_(subset, subset)].sum())
        assert best.tolist() == expected.tolist()


def test_the_official_walk_is_the_authors_walk() -> None:
    generator = rng(4)
    values = np.corrcoef(generator.standard_normal((30, 6)))
    start, others = np.arange(5), np.arange(5, 30)
    count = annealing.OFFICIAL_PROPOSALS
    leaving = np.array([generator.permutation(5)[:2] for _ in range(count)])
    entering = np.array([generator.permutation(25)[:2] for _ in range(count)])
    uniforms = generator.random(count)
    best = annealing.anneal_officially(values, start, others, leaving, entering, uniforms)
    assert best.tolist() == authors_walk(values, start, others, leaving, entering, uniforms)


def authors_walk(values, start, others, leaving, entering, uniforms) -> list[np.int64]:
    """The description of the authors' loop, transcribed in its order and without economies."""

    def energy(subset) -> float:
        return sum(values[first, second] for first in subset for second in subset)

    def propose(number) -> tuple[list[np.int64], list[np.int64]]:
        members, outsiders = list(current), list(outside)
        for out, into in zip(leaving[number], entering[number], strict=True):
            members[out], outsiders[into] = outsiders[into], members[out]
        return members, outsiders

    current, outside = list(start), list(others)
    best, best_energy = current, len(current) ** 2
    temperature, number = 10000, 0
    while temperature > 0.001:
        members, outsiders = propose(number)
        if energy(members) < best_energy:
            best, best_energy = members, energy(members)
        elif -(energy(members) - energy(current)) / temperature > np.log(uniforms[number]):
            current, outside = members, outsiders
        temperature *= 0.97
        number += 1
    for last in range(number, number + 1000):
        members, _ = propose(last)
        if energy(members) < best_energy:
            best, best_energy = members, energy(members)
    return best


def test_the_official_schedule_has_530_proposals_above_its_last_temperature() -> None:
    temperatures = 10_000 * 0.97 ** np.arange(1000)
    assert (temperatures > 0.001).sum() == annealing.OFFICIAL_ANNEALING


@pytest.mark.parametrize(("size", "fraction"), [(3, 0.6), (9, 1.0)])
def test_the_official_variant_needs_two_clients_on_both_sides_to_swap(size, fraction) -> None:
    sampler = samplers.build(SimilaritySampler(variant="official", greedy_fraction=fraction))
    sampler.sample(sampler.init(10), 4, rng())
    with pytest.raises(ConfigError, match=r"annealed of 10 do not allow; use `variant: clean`"):
        sampler.sample(sampler.init(10), size, rng())


@pytest.mark.parametrize("config", [RandomSampler(), SimilaritySampler()])
class TestEverySampler:
    def test_the_whole_population_can_take_part(self, config) -> None:
        sampler = samplers.build(config)
        assert sampler.sample(sampler.init(7), 7, rng()) == tuple(range(7))

    def test_one_client_can_take_part(self, config) -> None:
        sampler = samplers.build(config)
        (client,) = sampler.sample(sampler.init(7), 1, rng())
        assert client in range(7)

    @pytest.mark.parametrize("size", [0, 8])
    def test_other_cohort_sizes_are_refused(self, config, size) -> None:
        sampler = samplers.build(config)
        with pytest.raises(ValueError, match=f"between 1 and num_clients = 7, got {size}"):
            sampler.sample(sampler.init(7), size, rng())

    def test_the_state_is_made_of_arrays_and_ints(self, config) -> None:
        state = samplers.build(config).init(7)
        assert all(isinstance(field, np.ndarray | int) for field in state)


def test_without_a_greedy_share_sampling_is_random() -> None:
    greedy_free = samplers.build(SimilaritySampler(greedy_fraction=0.0))
    random = samplers.build(RandomSampler())
    expected = random.sample(random.init(4), 2, rng(5))
    assert greedy_free.sample(table_of(TWO_GROUPS), 2, rng(5)) == expected


def test_warmup_rounds_are_random_but_learned_from() -> None:
    patient = samplers.build(SimilaritySampler(warmup=1))
    random = samplers.build(RandomSampler())
    table = patient.init(50)
    assert patient.sample(table, 5, rng(5)) == random.sample(random.init(50), 5, rng(5))
    table = patient.learn(table, (0, 1), report_of([[1.0, 0.0], [1.0, 1.0]]))
    assert table.values[0, 1] > 0
    assert patient.sample(table, 5, rng(5)) != random.sample(random.init(50), 5, rng(5))


@pytest.mark.parametrize(
    ("fraction", "size", "num_greedy"), [(0.7, 10, 7), (0.7, 20, 14), (0.9, 20, 18), (0.3, 20, 6)]
)
def test_the_greedy_share_is_rounded_down_but_not_by_rounding_errors(
    fraction, size, num_greedy
) -> None:
    # Client pairs of one group are costly: annealing alone takes one of each, so that the number
    # of groups met is at least the greedy share.
    groups = np.repeat(np.arange(num_greedy), 2 * size)
    values = np.equal.outer(groups, groups).astype(float)
    sampler = samplers.build(SimilaritySampler(greedy_fraction=fraction, moves=20_000))
    cohort = sampler.sample(table_of(values), size, rng())
    assert len(set(groups[list(cohort)])) == num_greedy


def test_a_configuration_names_its_sampler() -> None:
    adapter = TypeAdapter(SamplerConfig)
    assert adapter.validate_python({"name": "random"}) == RandomSampler()
    assert adapter.validate_python({"name": "similarity", "ema": 0.7}).ema == 0.7
    with pytest.raises(ValidationError, match="similarity"):
        adapter.validate_python({"name": "round-robin"})


def test_a_large_population_needs_memory_for_the_pairs_seen_only() -> None:
    sampler = samplers.build(SimilaritySampler())
    table = sampler.init(100_000)
    for round_index in range(3):
        generator = rng(round_index)
        cohort = sampler.sample(table, 100, generator)
        updates = torch.from_numpy(generator.standard_normal((100, 5)))
        table = sampler.learn(table, cohort, report_of(updates.tolist()))
    assert len(table.pairs) <= 3 * 100 * 101 / 2
