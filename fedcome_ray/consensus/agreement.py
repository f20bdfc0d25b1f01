"""Consensus: replace every update by the nearest one that conflicts with no update of the cohort.

With the updates g_1..g_M as rows of G, client i's agreed update is the projection of g_i onto the
cone {x : G x >= 0}. By duality it is g_i + sum_k l_ik g_k, with multipliers l_i >= 0 that minimise
|g_i + sum_k l_ik g_k|. All M problems share the Gram matrix G G', so beyond one pass over the
params to form it, and one weighted sum of the raw updates at the end, nothing is of size dim.
Instead of every update only their mean may be projected, which is one problem of the same kind.

Everything is computed on the cosines, the Gram matrix scaled to unit diagonal: the answer does not
depend on the length of other clients' updates, and so neither should its accuracy.

Updates or their negatives (pseudo-gradients) may be given; the result has the same sense.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray import metrics
from fedcome_ray.errors import ConsensusError
from fedcome_ray.numerics import geometry
from fedcome_ray.numerics.geometry import Floats

Solver = Literal["active_set", "osqp"]
Projected = Literal["updates", "mean"]

CONFLICT_TOLERANCE = 1e-12
"""Cosine below which two updates conflict; between it and zero is rounding."""
KKT_TOLERANCE = 1e-9
"""Largest accepted violation of the optimality conditions, on the scale of cosines."""
DIRECTION_TOLERANCE = 1e-6
"""Cosine below which an update conflicts with the direction, which has the updates' precision."""
_OSQP_ACCURACY = 1e-3


@dataclass(frozen=True)
class Agreement:
    """The outcome of a consensus; `direction` is `coefficients @ updates`, unless clamped."""

    updates: Tensor  # [cohort, dim], as given
    mixing: Tensor  # [projected, cohort] float64; row i gives agreed update i from the raw updates
    coefficients: Tensor  # [cohort] float64
    direction: Tensor  # [dim]
    info: Mapping[str, float]

    def agreed_updates(self) -> Tensor:
        """The nearest updates without conflict, `[projected, dim]`, formed on demand."""
        return geometry.combine(self.mixing, self.updates)


def agree(
    updates: Tensor | Sequence[Tensor],
    weights: Tensor | None = None,
    *,
    gram: Tensor | None = None,
    projected: Projected = "updates",
    solver: Solver = "active_set",
    clamp: float | None = None,
    match_norm: bool = False,
) -> Agreement:
    """The weighted mean of the cohort's agreed updates, or their mean, agreed afterwards.

    `updates` is `[cohort, dim]` or blocks of its rows; `gram`, if known, saves a pass over it.
    `match_norm` rescales the direction to the length of the plain weighted mean, and `clamp` then
    limits each of its coordinates.
    """
    if not isinstance(updates, Tensor):
        updates = torch.cat(tuple(updates))
    if len(updates) == 0:
        raise ValueError("`updates` must be those of at least one client, got none")
    cosines, norms = geometry.normalise(geometry.gram_matrix(updates) if gram is None else gram)
    shares = _shares(weights, len(updates))
    plain_length = geometry.length(shares * norms, cosines)
    mean_weights, raw, lengths = shares, np.eye(len(norms)), norms
    if projected == "mean":
        mean_weights, raw, lengths = np.ones(1), shares[None], np.array([plain_length])

    started = time.perf_counter()
    targets = raw * (norms / geometry.nonzero(lengths)[:, None])
    solution = _solve(cosines, targets, norms, updates, solver)
    seconds = time.perf_counter() - started

    mixing = raw + solution.multipliers * (lengths[:, None] / geometry.nonzero(norms))
    coefficients = mean_weights @ mixing
    length = geometry.length(coefficients * norms, cosines)
    if length == 0.0:  # what would be left of the direction is rounding
        coefficients = np.zeros_like(coefficients)
    elif match_norm:
        coefficients *= plain_length / length
    direction = geometry.weighted_sum(torch.from_numpy(coefficients), updates)
    along = norms * (cosines @ (coefficients * norms))
    if clamp is not None:
        direction = direction.clamp(-clamp, clamp)
        along = geometry.products(updates, direction)
    return Agreement(
        updates=updates,
        mixing=torch.from_numpy(mixing),
        coefficients=torch.from_numpy(coefficients),
        direction=direction,
        info={
            **_describe(solution, cosines),
            metrics.CONFLICTS_AFTER: _num_opposed(along, norms, float(direction.norm())),
            "step_ratio": length / plain_length if plain_length > 0.0 else 1.0,
            "solve_seconds": seconds,
        },
    )


def _shares(weights: Tensor | None, size: int) -> Floats:
    if weights is None:
        return np.full(size, 1.0 / size)
    shares: Floats = weights.double().cpu().numpy()
    if shares.shape != (size,) or not (shares >= 0.0).all() or not 0.0 < shares.sum() < np.inf:
        raise ValueError(
            f"`weights` must be {size} non-negative numbers, not all zero, got {weights}"
        )
    total = float(shares.sum())
    return shares / total


class _Solution(NamedTuple):
    multipliers: Floats  # row i: how much of each update, both scaled to length 1, joins target i
    linear: Floats  # row i: cosines of target i and each raw update
    slack: Floats  # row i: the same once the others have joined, times the length it kept
    iterations: int
    kkt_residual: float


def _solve(
    cosines: Floats, targets: Floats, norms: Floats, updates: Tensor, solver: Solver
) -> _Solution:
    """Targets are combinations of the updates scaled to length 1, a row each, of length 1 too."""
    from fedcome_ray.consensus import (
        active_set,  # compiled: slow to import, and only servers need it
    )

    linear = targets @ cosines
    is_pending = np.any(linear < -CONFLICT_TOLERANCE, axis=1)  # the others agree already
    multipliers, iterations = np.zeros_like(linear), 0
    if solver == "osqp" and is_pending.any():
        multipliers, iterations = _osqp(cosines, linear, is_pending)
    iterations += active_set.solve(cosines, linear, multipliers, is_pending)
    slack = linear + multipliers @ cosines
    if is_pending.any():
        factor = geometry.triangular_factor(updates, norms)
        for row in np.flatnonzero(is_pending):
            target = factor @ targets[row]
            multipliers[row] = active_set.solve_on_factor(factor, target, multipliers[row])
            slack[row] = factor.T @ (target + factor @ multipliers[row])
    residuals = np.abs(np.minimum(multipliers, slack)).max(axis=1)
    # Multipliers of 1e7, between updates nearly opposite, cannot be more exact than float64 is.
    if not np.all(residuals <= KKT_TOLERANCE + 1e-15 * multipliers.sum(axis=1)):
        raise ConsensusError(
            f"the consensus of a cohort of {len(cosines)} by {solver} misses optimality by "
            f"{residuals.max():.1e}, allowed is {KKT_TOLERANCE:.0e}; the cosines of its updates "
            f"have condition number {np.linalg.cond(cosines, 1):.1e}"
        )
    return _Solution(multipliers, linear, slack, iterations, float(residuals.max()))


def _osqp(cosines: Floats, linear: Floats, is_pending: NDArray[np.bool_]) -> tuple[Floats, int]:
    """Multipliers to a low accuracy, good enough to tell which of them are positive.

    The active-set method starts from them: it solves for these exactly and, where the guess of
    who is positive was wrong, goes on from there. So however far OSQP got, it decides how many
    pivots are left, not the answer; its own polish would keep a wrong guess.
    """
    import osqp  # slow to import, and only needed here
    from scipy import sparse

    size = len(cosines)
    multipliers, iterations = np.zeros_like(linear), 0
    problem = osqp.OSQP()
    problem.setup(
        P=sparse.csc_matrix(np.triu(cosines)),
        q=np.zeros(size),
        A=sparse.eye(size, format="csc"),
        l=np.zeros(size),
        u=np.full(size, np.inf),
        eps_abs=_OSQP_ACCURACY,
        eps_rel=_OSQP_ACCURACY,
        verbose=False,
    )
    for row in np.flatnonzero(is_pending):
        problem.update(q=linear[row])
        result = problem.solve(raise_error=False)
        iterations += result.info.iter
        multipliers[row] = np.where(result.x > _OSQP_ACCURACY, result.x, 0.0)
    return multipliers, iterations


def _describe(solution: _Solution, cosines: Floats) -> dict[str, float]:
    squared_drifts = ((solution.slack - solution.linear) * solution.multipliers).sum(axis=1)
    return {
        metrics.CONFLICTS_BEFORE: int(np.triu(cosines < -CONFLICT_TOLERANCE, k=1).sum()),
        "drift": float(np.sqrt(np.maximum(squared_drifts, 0.0)).mean()),
        "solver_iterations": solution.iterations,
        "kkt_residual": solution.kkt_residual,
    }


def _num_opposed(along: Floats, norms: Floats, length: float) -> int:
    """Updates that conflict with the direction that is really taken, by their inner products."""
    return int((along < -DIRECTION_TOLERANCE * norms * length).sum())
