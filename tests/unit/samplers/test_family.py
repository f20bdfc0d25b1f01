"""Samplers beyond random and similarity, against plain implementations and by statistics."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fedcome_ray import datasets, models, samplers
from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.methods.method import Report
from fedcome_ray.samplers import ClusteredSampler, DivFL, PowerOfChoice, sketches
from fedcome_ray.samplers.clustered import angles, clusters, urns
from fedcome_ray.samplers.divfl import distances, greedy_facilities
from fedcome_ray.samplers.sketches import Sketches
from fedcome_ray.trials import checkpoint

NAMES = ("power_of_choice", "divfl", "clustered")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def report_of(updates: np.ndarray) -> Report:
    ones = torch.ones((len(updates), 1))
    return Report(torch.from_numpy(updates).float(), ones, ones, ones)


def known(rows: np.ndarray) -> Sketches:
    """A sampler that has seen everybody."""
    return Sketches(rows.astype(np.float32), np.ones(len(rows), np.bool_))


@pytest.mark.parametrize("dim", [10, 1024, 50_001])
def test_sketches_keep_inner_products(dim: int) -> None:
    """Of vectors not longer than a sketch exactly; else with a standard error of 1 / sqrt(1024)."""
    updates = rng(dim).normal(size=(20, dim)) + 0.5 * rng(1).normal(size=dim)
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    found = sketches.sketch(torch.from_numpy(units)).astype(float)
    errors = found @ found.T - units @ units.T
    if dim <= sketches.WIDTH:
        assert np.abs(errors).max() < 1e-6
    else:
        assert 0 < np.abs(errors).max() < 6 * sketches.WIDTH**-0.5


def test_sketches_are_those_of_the_last_time_a_client_took_part() -> None:
    state = sketches.nobodys(4)
    first, second = rng(0).normal(size=(2, 30)), rng(1).normal(size=(2, 30))
    state = sketches.learnt(state, (0, 2), report_of(first))
    later = sketches.learnt(state, (2, 3), report_of(second))
    assert state.is_seen.tolist() == [True, False, True, False]
    assert later.is_seen.tolist() == [True, False, True, True]
    rows = later.rows.astype(float)
    expected = np.stack([first[0], second[0], second[1]])
    np.testing.assert_allclose(rows[[0, 2, 3]] @ rows[[0, 2, 3]].T, expected @ expected.T, 1e-5)


def test_a_population_whose_pairs_do_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sampler.name: .* at most 2,000 of them, got 2,001"):
        samplers.build(DivFL()).init(2001)


def test_power_of_choice_takes_the_candidates_with_the_largest_losses() -> None:
    sampler = samplers.build(PowerOfChoice(candidates=2.5))
    state = sampler.init(20)
    losses = rng(3).permutation(20).astype(float)
    assert sampler.choose is not None
    for seed in range(20):
        candidates = sampler.sample(state, 4, rng(seed))
        assert len(candidates) == 10
        cohort = sampler.choose(candidates, losses[list(candidates)], 4)
        assert cohort == tuple(sorted(sorted(candidates, key=lambda k: -losses[k])[:4]))


def test_power_of_choice_favours_clients_as_order_statistics_say() -> None:
    """The client of rank r among K is chosen if fewer than m of the candidates are before it."""
    sampler, num_clients, size = samplers.build(PowerOfChoice(candidates=2)), 8, 2
    counts: Counter[int] = Counter()
    for seed in range(4000):
        candidates = sampler.sample(sampler.init(num_clients), size, rng(seed))
        losses = -np.array(candidates, float)  # client 0 has the largest
        counts.update(sampler.choose(candidates, losses, size))  # type: ignore[misc]
    expected = np.zeros(num_clients)
    for candidates in itertools.combinations(range(num_clients), 4):
        expected[list(candidates[:size])] += 1
    expected *= 4000 / expected.sum() * size
    likely = expected > 0
    found = np.array([counts[client] for client in range(num_clients)])
    assert found[~likely].sum() == 0
    assert np.abs(found - expected).max() < 5 * np.sqrt(4000 / 4)


def test_with_one_candidate_for_each_place_it_is_random() -> None:
    config, plain = PowerOfChoice(candidates=1.0), samplers.RandomSampler()
    for seed in range(5):
        drawn = [
            samplers.build(one).sample(samplers.build(one).init(30), 7, rng(seed))
            for one in (config, plain)
        ]
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("seed", range(5))
def test_facilities_are_chosen_as_by_plain_greed(seed: int) -> None:
    rows = rng(seed).normal(size=(9, 4))
    distance = distances(rows.astype(np.float32))
    for one, other in itertools.product(range(9), repeat=2):
        assert distance[one, other] == pytest.approx(
            np.linalg.norm(rows[one] - rows[other]), abs=1e-3
        )
    chosen: list[int] = []
    for _ in range(4):
        costs = {
            new: sum(min(distance[k, i] for i in [*chosen, new]) for k in range(9))
            for new in set(range(9)) - set(chosen)
        }
        chosen.append(min(costs, key=lambda new: costs[new]))
    assert greedy_facilities(distance, 4).tolist() == chosen


def test_greed_is_near_the_best_cohort() -> None:
    """At least 1 - 1/e of the best, as for every submodular gain; on these, nearly all of it."""
    distance = distances(rng(7).normal(size=(10, 3)).astype(np.float32))

    def gain(cohort: tuple[int, ...]) -> float:
        return float((distance.max() - distance[:, list(cohort)].min(axis=1)).sum())

    best = max(map(gain, itertools.combinations(range(10), 3)))
    assert gain(tuple(greedy_facilities(distance, 3).tolist())) >= (1 - 1 / np.e) * best


GROUPS = np.repeat(np.eye(4), 5, axis=0)  # twenty clients of four kinds


@pytest.mark.parametrize("name", ["divfl", "clustered"])
def test_a_cohort_has_one_client_of_each_kind(name: str) -> None:
    config = {"divfl": DivFL(), "clustered": ClusteredSampler()}[name]
    rows = np.pad(GROUPS, ((0, 0), (0, 60))) + 0.01 * rng(0).normal(size=(20, 64))
    for seed in range(10):
        cohort = samplers.build(config).sample(known(rows), 4, rng(seed))
        assert [client // 5 for client in cohort] == [0, 1, 2, 3]


def test_divfl_sees_everybody_before_it_chooses() -> None:
    sampler, seen = samplers.build(DivFL()), set()
    state = sampler.init(11)
    for number in range(3):
        cohort = sampler.sample(state, 4, rng(number))
        assert len(cohort) == len(set(cohort)) == 4
        state = sampler.learn(state, cohort, report_of(rng(number).normal(size=(4, 6))))
        seen |= set(cohort)
    assert seen == set(range(11))


@pytest.mark.parametrize(("num_clients", "size"), [(20, 4), (20, 3), (7, 5), (9, 2)])
def test_urns_share_out_every_client_equally(num_clients: int, size: int) -> None:
    for seed in range(10):
        rows = rng(seed).normal(size=(num_clients, 5)).astype(np.float32)
        cluster = clusters(angles(rows), size)
        assert np.bincount(cluster).max() * size <= num_clients
        masses = urns(cluster, size)
        assert (masses >= 0).all()
        assert (masses.sum(axis=0) == size).all()
        assert (masses.sum(axis=1) == num_clients).all()


def test_clusters_join_what_wards_method_joins_first() -> None:
    """The two clients with the least angle are in one cluster, if a cluster has room for two."""
    for seed in range(10):
        found = angles(rng(seed).normal(size=(12, 3)).astype(np.float32))
        first, second = np.unravel_index(np.where(found > 0, found, np.inf).argmin(), found.shape)
        cluster = clusters(found, 6)
        assert cluster[first] == cluster[second]


def test_with_clusters_everybody_takes_part_equally_often_and_the_alike_seldom_together() -> None:
    rows = np.pad(GROUPS, ((0, 0), (0, 60))) + 0.1 * rng(0).normal(size=(20, 64))
    sampler, counts, together = samplers.build(ClusteredSampler()), np.zeros(20), 0
    for seed in range(600):
        cohort = list(sampler.sample(known(rows), 4, rng(seed)))
        counts[cohort] += 1
        together += len({client // 5 for client in cohort}) < 4
    assert chisquare(counts).pvalue > 1e-4
    by_chance = 1 - 5**4 / 4845  # of 4845 cohorts of 4 of 20, so many have one of each kind
    assert together / 600 < by_chance / 2


def test_clients_not_seen_yet_are_a_cluster_of_their_own() -> None:
    found = angles(np.array([[1, 0], [0, 0], [0, 0], [-1, 0]], np.float32))
    assert found[1, 2] == 0
    assert found[0, 1] == pytest.approx(np.pi / 2)
    assert found[0, 3] == pytest.approx(np.pi)


def trial_of(name: str) -> Trial:
    return parse_trial(
        {
            "method": {"name": "fedcome"},
            "sampler": {"name": name},
            "data": {"dataset": "digits", "num_clients": 12, "partition": {"name": "dirichlet"}},
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"batch_size": 16, "lr": 0.1},
            "cohort_size": 4,
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_shards_and_a_restart_give_the_same_bits(name: str) -> None:
    trial = trial_of(name)
    population = datasets.load(trial.data)
    params = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    paths = []
    for num_shards in (1, 3):
        server, shards = Server(trial, params, 12), LocalShards(trial, population, num_shards)
        fresh = server.state
        cohorts = [run_round(server, shards, evaluate=False).cohort for _ in range(4)]
        kept = checkpoint.flatten(server.state, "server")
        server.state = checkpoint.rebuild(fresh, kept, "server")
        cohorts += [run_round(server, shards, evaluate=False).cohort for _ in range(3)]
        paths.append((cohorts, server.params))
    assert all(len(cohort) == 4 and list(cohort) == sorted(cohort) for cohort in paths[0][0])
    assert paths[0][0] == paths[1][0]
    assert torch.equal(paths[0][1], paths[1][1])


def test_losses_of_candidates_are_those_of_an_evaluation() -> None:
    trial = trial_of("power_of_choice")
    population = datasets.load(trial.data)
    params = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    shards = LocalShards(trial, population, 2)
    losses = shards.losses(params, (1, 4, 9))
    expected = shards.evaluate(params, "train").client_loss[[1, 4, 9]]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
