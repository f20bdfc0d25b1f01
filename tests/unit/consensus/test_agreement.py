import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from torch import Tensor

from fedcome_ray.consensus import active_set
from fedcome_ray.consensus import agreement as consensus
from fedcome_ray.errors import ConsensusError, DivergenceError
from fedcome_ray.numerics import geometry


@pytest.fixture(params=["active_set", "osqp"], autouse=True)
def solver(request: pytest.FixtureRequest) -> str:
    return request.param


def updates_of(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


CONFLICT = [[1.0, 0.0], [-1.0, 1.0]]
MUTUAL_CONFLICT = [[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]]


@pytest.mark.parametrize(
    ("updates", "mixing", "direction"),
    [
        pytest.param(CONFLICT, [[1, 1 / 2], [1, 1]], [1 / 4, 3 / 4], id="two conflicting clients"),
        pytest.param([[2, 1], [1, 3]], [[1, 0], [0, 1]], [3 / 2, 2], id="agreement"),
        pytest.param(
            MUTUAL_CONFLICT,
            [[1, 1 / 2, 1 / 2], [1 / 2, 1, 1 / 2], [1 / 2, 1 / 2, 1]],
            [-2 / 3, -2 / 3, -2 / 3],
            id="three mutually conflicting clients",
        ),
        pytest.param([[1, 0], [-10, 10]], [[1, 1 / 20], [10, 1]], [1 / 4, 21 / 4], id="rescaled"),
        pytest.param([[3.0, -4.0]], [[1]], [3, -4], id="a cohort of one"),
    ],
)
def test_independent_updates_agree_as_computed_by_hand(updates, mixing, direction, solver) -> None:
    agreement = consensus.agree(updates_of(updates), solver=solver)
    assert agreement.mixing.numpy() == pytest.approx(np.array(mixing), abs=1e-12)
    assert agreement.direction.numpy() == pytest.approx(np.array(direction), abs=1e-12)
    assert agreement.info["conflicts/after"] == 0


@pytest.mark.parametrize(
    ("updates", "agreed"),
    [
        pytest.param([[3, 4], [-3, -4]], [[0, 0], [0, 0]], id="opposite"),
        pytest.param([[3, 4], [-1.5, -2]], [[0, 0], [0, 0]], id="opposite of other length"),
        pytest.param(
            [[1, 0], [-1, 1], [0, 1]], [[0.5, 0.5], [0, 1], [0, 1]], id="more clients than params"
        ),
        pytest.param(
            [[1, 0], [-1, 1], [-1, -1]], [[0, 0], [0, 0], [0, 0]], id="positive sum vanishes"
        ),
        pytest.param(
            [[1, 0, 0], [-1, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0], [0, 1, 0]], id="bystander"
        ),
        pytest.param([[0, 0], [0, 0]], [[0, 0], [0, 0]], id="all zero"),
        pytest.param([[1, 0], [0, 0], [-1, 1]], [[0.5, 0.5], [0, 0], [0, 1]], id="one zero"),
    ],
)
def test_dependent_updates_agree_as_computed_by_hand(updates, agreed, solver) -> None:
    agreement = consensus.agree(updates_of(updates), solver=solver)
    assert agreement.agreed_updates().numpy() == pytest.approx(np.array(agreed), abs=1e-12)
    assert agreement.direction.numpy() == pytest.approx(np.mean(agreed, axis=0), abs=1e-12)


@pytest.mark.parametrize(
    ("size", "rho", "factor"),
    [
        (3, Fraction(1, 4), 5 / 3),
        (4, Fraction(3, 10), 3.25),
        (5, Fraction(1, 5), 3),
        (10, Fraction(1, 10), 5.5),
    ],
)
def test_equally_conflicting_clients_only_lengthen_the_mean(size, rho, factor, solver) -> None:
    cosines = (1 + float(rho)) * np.eye(size) - float(rho)
    updates = torch.from_numpy(np.linalg.cholesky(cosines))
    agreement = consensus.agree(updates, solver=solver)
    off_diagonal = float(rho / (1 - (size - 2) * rho))
    expected = np.full((size, size), off_diagonal) + (1 - off_diagonal) * np.eye(size)
    assert agreement.mixing.numpy() == pytest.approx(expected, rel=1e-12)
    assert torch.allclose(agreement.direction, factor * updates.mean(0), rtol=1e-12)
    assert agreement.info["step_ratio"] == pytest.approx(factor)


def test_weights_are_normalised(solver) -> None:
    agreement = consensus.agree(updates_of(CONFLICT), torch.tensor([100, 300]), solver=solver)
    assert agreement.direction.tolist() == pytest.approx([1 / 8, 7 / 8])


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]]
)
def test_impossible_weights_are_refused(weights) -> None:
    with pytest.raises(ValueError, match="2 non-negative numbers"):
        consensus.agree(updates_of(CONFLICT), torch.tensor(weights))


def test_clamp_limits_each_coordinate() -> None:
    update = updates_of([[0.004, -0.02, 0.005, 0.0051]])
    direction = consensus.agree(update, clamp=0.005).direction
    assert direction.tolist() == [0.004, -0.005, 0.005, 0.005]


def test_matched_norm_keeps_the_direction_and_the_length_of_the_plain_mean(solver) -> None:
    updates = updates_of(MUTUAL_CONFLICT)
    direction = consensus.agree(updates, solver=solver, match_norm=True).direction
    assert torch.allclose(direction, updates.mean(0), rtol=1e-12)  # twice as long without


def test_matched_norm_does_not_blow_up_a_direction_that_vanishes(solver) -> None:
    updates = updates_of([[3.0, 4.0], [-1.5, -2.0]])
    direction = consensus.agree(updates, solver=solver, match_norm=True).direction
    assert direction.norm() < 1e-14


def test_info_describes_what_happened(solver) -> None:
    info = consensus.agree(updates_of(CONFLICT), solver=solver).info
    assert info["conflicts/before"] == 1
    assert info["conflicts/after"] == 0
    assert info["drift"] == pytest.approx(math.sqrt(1 / 2))  # both updates move by that share
    assert info["step_ratio"] == pytest.approx(math.sqrt(10) / 2)
    assert info["kkt_residual"] <= 1e-15
    assert info["solver_iterations"] >= 2
    assert info["solve_seconds"] > 0


def test_blocks_of_updates_are_one_cohort(solver) -> None:
    updates = torch.randn((6, 20), generator=torch.Generator().manual_seed(0))
    whole = consensus.agree(updates, solver=solver)
    blocks = consensus.agree([updates[:2], updates[2:]], solver=solver)
    assert torch.equal(whole.direction, blocks.direction)


def test_a_given_gram_matrix_is_not_computed_again(solver, monkeypatch) -> None:
    updates = updates_of(CONFLICT)
    monkeypatch.setattr("fedcome_ray.numerics.geometry.gram_matrix", None)
    agreement = consensus.agree(updates, gram=updates @ updates.T, solver=solver)
    assert agreement.direction.tolist() == pytest.approx([1 / 4, 3 / 4])


def test_the_same_input_gives_the_same_bits(solver) -> None:
    updates = digits_updates(40)
    first, second = (consensus.agree(updates, solver=solver).direction for _ in range(2))
    assert torch.equal(first, second)


def test_float32_updates_give_a_float32_direction_and_are_not_written_to(solver) -> None:
    updates = digits_updates(20).float()
    before = updates.clone()
    agreement = consensus.agree(updates, solver=solver)
    assert agreement.direction.dtype == agreement.agreed_updates().dtype == torch.float32
    assert torch.equal(updates, before)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_updates_that_are_not_finite_are_named(value, solver) -> None:
    updates = torch.ones((4, 3))
    updates[1, 2] = updates[3, 0] = value
    with pytest.raises(DivergenceError, match=r"2 of 4 updates .* positions of the cohort: 1, 3"):
        consensus.agree(updates, solver=solver)


def test_a_solution_that_misses_optimality_is_an_error(solver) -> None:
    damaged = torch.tensor([[1.0, math.nan], [math.nan, 2.0]], dtype=torch.float64)
    with pytest.raises(ConsensusError, match=r"cohort of 2 .* misses optimality .* condition"):
        consensus.agree(updates_of(CONFLICT), gram=damaged, solver=solver)


@pytest.mark.parametrize(("size", "scale"), [(10, 1.0), (40, 1e-8), (100, 1e8), (196, 1.0)])
def test_real_updates_agree_with_least_squares_on_the_updates_themselves(
    size, scale, solver
) -> None:
    updates = digits_updates(size) * scale
    agreement = consensus.agree(updates.float(), solver=solver)
    expected = projections(updates.float().double().numpy()).mean(axis=0)
    error = np.linalg.norm(agreement.direction.double().numpy() - expected)
    assert error <= 1e-7 * np.linalg.norm(expected)
    assert agreement.info["conflicts/before"] > size
    assert agreement.info["kkt_residual"] <= 1e-9


@pytest.mark.parametrize("distance", [1e-3, 1e-5, 1e-7])
def test_updates_opposite_but_for_a_trifle_are_told_apart(distance, solver) -> None:
    # The first two leave a wedge as narrow as `distance`, which squared is lost in float64.
    opposite = [[1.0, 0.0], [-1.0, distance]]
    along = consensus.agree(updates_of([*opposite, [0.5, 0.5]]), solver=solver)
    against = consensus.agree(updates_of([*opposite, [0.5, -0.5]]), solver=solver)
    edge = np.array([distance, 1.0])
    kept = 0.5 * edge * edge.sum() / (edge @ edge)
    assert along.agreed_updates()[2].numpy() == pytest.approx(kept, abs=1e-7)
    assert against.agreed_updates()[2].numpy() == pytest.approx(np.zeros(2), abs=1e-7)


def digits_updates(num_clients: int) -> Tensor:
    """First gradients of logistic regression on handwritten digits, two classes for each client."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(num_clients)
    weights = 0.01 * rng.standard_normal((64, 10))
    updates = []
    for client in range(num_clients):
        of_classes = np.isin(labels, [client % 10, (client // 10 + client + 1) % 10])
        chosen = rng.choice(np.flatnonzero(of_classes), 20)
        inputs, targets = images[chosen] / 16, np.eye(10)[labels[chosen]]
        scores = np.exp(inputs @ weights)
        updates.append(inputs.T @ (targets - scores / scores.sum(1, keepdims=True)))
    return torch.from_numpy(np.stack(updates).reshape(num_clients, -1))


def projections(updates: np.ndarray) -> np.ndarray:
    """Each update projected onto the cone, by scipy on the updates instead of their products."""
    scaled = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    basis, factor = np.linalg.qr(scaled.T)
    residuals = [-nnls(factor, -column)[0] @ factor.T - column for column in factor.T]
    return -np.stack(residuals) @ basis.T * np.linalg.norm(updates, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", [11, 13])  # rounding alone used to send half of them there
def test_a_cohort_in_few_dimensions_needs_no_slow_solution(seed) -> None:
    updates = np.random.default_rng(seed).normal(size=(196, 100))
    cosines, _ = geometry.normalise(torch.from_numpy(updates @ updates.T))
    multipliers, is_pending = np.zeros_like(cosines), np.ones(196, np.bool_)
    active_set.solve(cosines, cosines, multipliers, is_pending)
    assert not is_pending.any()
    assert (cosines + multipliers @ cosines).min() > -1e-10


def test_a_clamp_that_brings_conflicts_back_is_counted() -> None:
    updates = torch.tensor([[1.0, 0.0], [-10.0, 10.5]])
    free = consensus.agree(updates)
    clamped = consensus.agree(updates, clamp=0.1)
    assert free.info["conflicts/after"] == 0
    opposed = int((updates @ clamped.direction < -1e-6).sum())
    assert clamped.info["conflicts/after"] == opposed


def test_a_direction_of_which_only_rounding_is_left_is_none(solver) -> None:
    updates = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    found = consensus.agree(updates, solver=solver)
    assert found.direction.count_nonzero() == 0
    assert found.info["conflicts/before"] > 0
    assert found.info["conflicts/after"] == 0


def test_nobody_has_no_consensus() -> None:
    with pytest.raises(ValueError, match="at least one client"):
        consensus.agree(torch.empty(0, 3))
