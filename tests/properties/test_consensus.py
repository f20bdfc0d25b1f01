"""What projecting on the cone of agreement means, on cohorts made to be difficult.

All distances are relative to the
lengths of the updates concerned.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedcome_ray.consensus import agreement as consensus

Floats = NDArray[np.float64]
SOLVERS = ["active_set", "osqp"]
TOLERANCE = 1e-9

on_both_solvers = pytest.mark.parametrize("solver", SOLVERS)


def random(rng: np.random.Generator, size: int, dim: int) -> Floats:
    return rng.standard_normal((size, dim))


def clustered(rng: np.random.Generator, size: int, dim: int) -> Floats:
    centres = rng.standard_normal((3, dim))
    return centres[rng.integers(3, size=size)] + 0.1 * rng.standard_normal((size, dim))


def duplicated(rng: np.random.Generator, size: int, dim: int) -> Floats:
    return rng.standard_normal((size, dim))[rng.integers(size, size=size)]


def opposed(rng: np.random.Generator, size: int, dim: int) -> Floats:
    updates = rng.standard_normal((size, dim))
    updates[size // 2] = -updates[0]
    return updates


def low_rank(rng: np.random.Generator, size: int, dim: int) -> Floats:
    rank = 1 + dim // 3
    return rng.standard_normal((size, rank)) @ rng.standard_normal((rank, dim))


def small_integers(rng: np.random.Generator, size: int, dim: int) -> Floats:
    return rng.integers(-2, 3, size=(size, dim)).astype(float)  # zeros, ties, exact dependence


def nearly_agreeing(rng: np.random.Generator, size: int, dim: int) -> Floats:
    return 1.0 + rng.standard_normal((size, dim)) * rng.choice([0.5, 1.0, 2.0])


KINDS = [random, clustered, duplicated, opposed, low_rank, small_integers, nearly_agreeing]


@st.composite
def cohorts(draw: st.DrawFn, max_size: int = 12, *, is_scaled: bool = True) -> Floats:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size, dim = draw(st.integers(1, max_size)), draw(st.integers(1, 15))
    updates = draw(st.sampled_from(KINDS))(rng, size, dim)
    # Powers of two, so that duplicates stay duplicates.
    exponents = rng.integers(-27, 28, size=(size, 1)) if is_scaled else 0
    return updates * 2.0**exponents


def agreed(updates: Floats, solver: consensus.Solver) -> Floats:
    return consensus.agree(torch.from_numpy(updates), solver=solver).agreed_updates().numpy()


def lengths(updates: Floats) -> Floats:
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    return np.where(norms > 0, norms, 1.0)


def assert_same(actual: Floats, expected: Floats, updates: Floats, tolerance: float = 1e-7) -> None:
    assert np.max(np.linalg.norm((actual - expected) / lengths(updates), axis=1)) <= tolerance


@on_both_solvers
@given(updates=cohorts())
def test_updates_without_conflict_stay_as_they_are(updates, solver) -> None:
    agreement = consensus.agree(torch.from_numpy(np.abs(updates)), solver=solver)
    assert torch.equal(agreement.mixing, torch.eye(len(updates), dtype=torch.float64))


@on_both_solvers
@given(updates=cohorts())
def test_agreed_updates_conflict_with_no_update_raw_or_agreed(updates, solver) -> None:
    result = agreed(updates, solver)
    scaled, raw = result / lengths(updates), updates / lengths(updates)
    assert (scaled @ raw.T).min() >= -TOLERANCE
    assert (scaled @ scaled.T).min() >= -TOLERANCE


@on_both_solvers
@given(updates=cohorts(is_scaled=False), seed=st.integers(0, 2**32))
def test_the_direction_lowers_every_clients_risk_by_its_share(updates, seed, solver) -> None:
    weights = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(len(updates))))
    agreement = consensus.agree(torch.from_numpy(updates), weights, solver=solver)
    squared = (agreement.agreed_updates() ** 2).sum(1)
    slack = torch.from_numpy(updates) @ agreement.direction - weights * squared
    assert slack.min() >= -TOLERANCE * lengths(updates).max() ** 2


@on_both_solvers
@given(updates=cohorts())
def test_agreed_updates_are_orthogonal_projections(updates, solver) -> None:
    result = agreed(updates, solver) / lengths(updates)
    raw = updates / lengths(updates)
    squared = (result**2).sum(1)
    assert (result * raw).sum(1) == pytest.approx(squared, abs=TOLERANCE)
    assert (raw**2).sum(1) == pytest.approx(squared + ((result - raw) ** 2).sum(1), abs=TOLERANCE)
    assert squared.max() <= 1 + TOLERANCE


@on_both_solvers
@given(updates=cohorts())
def test_only_updates_at_the_limit_of_conflict_are_added(updates, solver) -> None:
    agreement = consensus.agree(torch.from_numpy(updates), solver=solver)
    size = lengths(updates)
    multipliers = (agreement.mixing.numpy() - np.eye(len(updates))) * size.T / size
    slack = (agreement.agreed_updates().numpy() / size) @ (updates / size).T
    assert multipliers.min() >= 0.0
    assert np.abs(np.minimum(multipliers, slack)).max() <= TOLERANCE


@on_both_solvers
@given(updates=cohorts(), seed=st.integers(0, 2**32))
def test_the_length_of_an_update_matters_to_its_own_client_only(updates, seed, solver) -> None:
    rng = np.random.default_rng(seed)
    factors = 2.0 ** rng.integers(-27, 28, size=(len(updates), 1))
    expected = agreed(updates, solver) * factors
    assert_same(agreed(updates * factors, solver), expected, updates * factors)


@on_both_solvers
@given(updates=cohorts(is_scaled=False), seed=st.integers(0, 2**32))
def test_neither_rotation_nor_order_nor_sign_matters(updates, seed, solver) -> None:
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.standard_normal((updates.shape[1], updates.shape[1])))
    order = rng.permutation(len(updates))
    result = agreed(updates, solver)
    assert_same(agreed(updates @ rotation, solver), result @ rotation, updates)
    assert_same(agreed(updates[order], solver), result[order], updates[order])
    assert_same(agreed(-updates, solver), -result, updates)


@on_both_solvers
@given(updates=cohorts(max_size=8))
def test_agreeing_again_changes_nothing(updates, solver) -> None:
    once = agreed(updates, solver)
    for client, update in enumerate(once):
        cohort = np.vstack((updates, update))
        again = agreed(cohort, solver)[-1]
        assert np.linalg.norm(again - update) <= 1e-7 * lengths(updates)[client]


@on_both_solvers
@given(updates=cohorts(is_scaled=False), seed=st.integers(0, 2**32))
def test_redundant_clients_change_nothing_for_the_others(updates, seed, solver) -> None:
    rng = np.random.default_rng(seed)
    result = agreed(updates, solver)
    duplicate = rng.integers(len(updates))
    combination = rng.integers(0, 3, size=len(updates)) @ updates
    more = np.vstack((updates, updates[duplicate], combination, np.zeros(updates.shape[1])))
    extended = agreed(more, solver)
    expected = np.vstack((result, result[duplicate]))
    assert_same(extended[: len(updates) + 1], expected, more[: len(updates) + 1])
    assert not extended[-1].any()


@on_both_solvers
@given(updates=cohorts(is_scaled=False), factor=st.floats(1e-6, 1e6))
def test_nothing_is_agreed_where_the_mean_vanishes(updates, factor, solver) -> None:
    balanced = np.vstack((updates, -updates.sum(0)))
    assert_same(agreed(balanced, solver), np.zeros_like(balanced), balanced)
    opposite = np.vstack((updates[0], -factor * updates[0]))
    assert_same(agreed(opposite, solver), np.zeros_like(opposite), opposite)


@on_both_solvers
@given(updates=cohorts())
def test_the_problem_in_all_params_has_the_same_solution(updates, solver) -> None:
    raw = updates / lengths(updates)
    for client, result in enumerate(agreed(updates, solver) / lengths(updates)):
        multipliers, _ = nnls(raw.T, -raw[client])
        expected = raw[client] + multipliers @ raw
        # Scipy's answer may not be one: a projection onto a cone is in it, and no longer.
        if (raw @ expected).min() >= -TOLERANCE and np.linalg.norm(expected) <= 1 + TOLERANCE:
            assert np.linalg.norm(result - expected) <= 1e-7


@on_both_solvers
@given(seed=st.integers(0, 2**32), size=st.integers(1, 10))
def test_independent_updates_all_keep_something(seed, size, solver) -> None:
    updates = np.random.default_rng(seed).standard_normal((size, 3 * size))
    agreement = consensus.agree(torch.from_numpy(updates), solver=solver)
    assert agreement.mixing.diagonal().tolist() == [1.0] * size
    assert (torch.from_numpy(updates) @ agreement.direction).min() > 0


@on_both_solvers
@given(seed=st.integers(0, 2**32), size=st.integers(2, 8))
def test_a_short_step_raises_no_clients_risk(seed, size, solver) -> None:
    # Property 14 for risks |params - p|^2 / 2, whose smoothness is 1.
    optima = np.random.default_rng(seed).standard_normal((size, size + 2))
    direction = consensus.agree(torch.from_numpy(-optima), solver=solver).direction.numpy()
    step = 2 * (-optima @ direction).min() / (direction @ direction)
    before = (optima**2).sum(1)
    after = ((optima + step * direction) ** 2).sum(1)
    assert (after <= before + TOLERANCE).all()


@on_both_solvers
@given(seed=st.integers(0, 2**32), dim=st.integers(2, 9))
def test_two_clients_give_up_their_part_against_each_other(seed, dim, solver) -> None:
    first, second = updates = np.random.default_rng(seed).standard_normal((2, dim))
    conflict = min(first @ second, 0.0)
    expected = np.stack(
        (first - conflict / (second @ second) * second, second - conflict / (first @ first) * first)
    )
    assert_same(agreed(updates, solver), expected, updates)


@given(updates=cohorts(max_size=20))
def test_the_solvers_agree_with_each_other(updates) -> None:
    assert_same(agreed(updates, "active_set"), agreed(updates, "osqp"), updates)


@on_both_solvers
@settings(max_examples=30)
@given(updates=cohorts(), factor=st.floats(1.1, 1.9))
def test_opposite_float32_updates_of_any_length_are_solved(updates, factor, solver) -> None:
    # Rounding makes them opposite only to 1e-8, which no multiplier in float64 can undo to 1e-9.
    opposite = torch.from_numpy(np.vstack((updates, -factor * updates[0]))).float()
    agreement = consensus.agree(opposite, solver=solver)
    size = lengths(opposite.double().numpy())
    mixed = agreement.mixing.numpy() @ opposite.double().numpy() / size
    assert (mixed @ (opposite.double().numpy() / size).T).min() >= -1e-5
