from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from fedcome_ray.errors import ConsensusError
from fedcome_ray.methods import fedmgda_plus
from fedcome_ray.methods.fedmgda_plus import FedMGDAPlus, min_norm_weights
from tests.unit.methods.quadratics import column, report_of

Floats = NDArray[np.float64]


def unit_vectors(size: int, dim: int, seed: int) -> Floats:
    vectors = np.random.default_rng(seed).normal(size=(size, dim))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def shortest_by_enumeration(gram: Floats, centre: Floats, epsilon: float) -> float:
    """The least length over all ways to put each weight at a limit or between its limits."""
    size = len(gram)
    limits = np.maximum(0, centre - epsilon), np.minimum(1, centre + epsilon)
    best = np.inf
    for places in product((0, 1, None), repeat=size):
        free = [index for index, place in enumerate(places) if place is None]
        weights = np.array([0.0 if p is None else limits[p][i] for i, p in enumerate(places)])
        if free:  # stationary on the face, with the multiplier of sum(weights) = 1
            system = np.ones((len(free) + 1, len(free) + 1))
            system[:-1, :-1] = gram[np.ix_(free, free)]
            system[-1, -1] = 0
            target = np.append(-(gram @ weights)[free], 1 - weights.sum())
            weights[free] = np.linalg.lstsq(system, target, rcond=None)[0][:-1]
        feasible = abs(weights.sum() - 1) < 1e-9 and np.all(
            (weights >= limits[0] - 1e-9) & (weights <= limits[1] + 1e-9)
        )
        if feasible:
            best = min(best, weights @ gram @ weights)
    return float(best)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 1.0])
def test_weights_are_those_of_an_exhaustive_search(seed: int, epsilon: float) -> None:
    vectors = unit_vectors(size=4, dim=3 if seed % 2 else 6, seed=seed)
    centre = np.random.default_rng(seed).dirichlet(np.ones(4))
    gram = vectors @ vectors.T
    weights = min_norm_weights(gram, centre, epsilon)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(np.abs(weights - centre) <= epsilon + 1e-12)
    assert np.all(weights >= 0)
    expected = shortest_by_enumeration(gram, centre, epsilon)
    assert weights @ gram @ weights == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.02, 1.0])
def test_weights_of_a_large_cohort_are_those_of_a_general_solver(epsilon: float) -> None:
    vectors = unit_vectors(size=30, dim=60, seed=1)
    gram, centre = vectors @ vectors.T, np.full(30, 1 / 30)
    solution = minimize(
        lambda weights: weights @ gram @ weights / 2,
        centre,
        jac=lambda weights: gram @ weights,
        bounds=[(max(0.0, 1 / 30 - epsilon), min(1.0, 1 / 30 + epsilon))] * 30,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(min_norm_weights(gram, centre, epsilon), solution.x, atol=1e-5)


def test_equal_and_opposite_clients_do_not_confuse_the_search() -> None:
    gram = np.array([[1.0, 1, -1], [1, 1, -1], [-1, -1, 1]])
    weights = min_norm_weights(gram, np.full(3, 1 / 3), 1.0)
    assert weights @ gram @ weights == pytest.approx(0, abs=1e-12)
    assert weights[2] == pytest.approx(0.5)


@pytest.mark.parametrize("noise", [1e-4, 1e-5, 1e-7])
def test_near_duplicates_are_weighed_to_the_end(noise: float) -> None:
    vectors = unit_vectors(size=20, dim=50, seed=2)
    vectors = np.concatenate([vectors, vectors + noise * unit_vectors(size=20, dim=50, seed=3)])
    gram, centre = vectors @ vectors.T, np.full(40, 1 / 40)
    weights = min_norm_weights(gram, centre, 0.1)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    slope, can_give, can_take = gram @ weights, weights > 1e-12, 1 / 40 + 0.1 - weights > 1e-12
    assert slope[can_give].max() - slope[can_take].min() <= 1e-9


def test_a_search_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedmgda_plus, "MAX_MOVES", 1)
    vectors = unit_vectors(size=8, dim=20, seed=0)
    with pytest.raises(ConsensusError, match="cohort of 8 after 1 moves"):
        min_norm_weights(vectors @ vectors.T, np.full(8, 1 / 8), 1.0)


def step(hp: FedMGDAPlus, updates: torch.Tensor, num_examples: torch.Tensor) -> torch.Tensor:
    method = fedmgda_plus.build(hp)
    server = method.init_server(torch.zeros_like(updates[0]), len(updates))
    reports = report_of(updates, num_examples=num_examples)
    return method.aggregate(server, tuple(range(len(updates))), reports)[0].params


def test_two_clients_meet_on_the_bisector_however_long_their_updates() -> None:
    updates = torch.tensor([[10.0, 0.0], [0.0, 0.1]], dtype=torch.float64)
    moved = step(FedMGDAPlus(epsilon=1, server_lr=2), updates, column(1, 9))
    torch.testing.assert_close(moved, torch.tensor([1.0, 1.0], dtype=torch.float64))


def test_with_epsilon_zero_clients_count_by_their_examples() -> None:
    updates = torch.tensor([[10.0, 0.0], [0.0, 0.1]], dtype=torch.float64)
    moved = step(FedMGDAPlus(epsilon=0), updates, column(1, 3))
    torch.testing.assert_close(moved, torch.tensor([0.25, 0.75], dtype=torch.float64))


def test_free_weights_give_a_direction_that_conflicts_with_nobody() -> None:
    updates = torch.from_numpy(unit_vectors(size=6, dim=20, seed=4))
    moved = step(FedMGDAPlus(epsilon=1), updates, torch.ones(6, 1, dtype=torch.float64))
    assert (updates @ moved >= moved @ moved - 1e-9).all()
