"""Quadratic programs that share one matrix, solved exactly by an active-set method.

For every target t: minimise 1/2 x' C x + t' C x over x >= 0, where C is the matrix of cosines
between updates; targets are combinations of updates, such as each single one. This is non-negative
least squares in normal form, solved as by Lawson and Hanson: a passive set of multipliers is free,
the others are zero; the most violated constraint enters, and a multiplier that would turn negative
leaves. The passive set's Cholesky factor grows by a row when a client enters and is rebuilt from
the place where one leaves.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedcome_ray.numerics.geometry import Floats

ENTRY_TOLERANCE = 1e-13
"""Violations below are rounding of the cosines, which have unit scale ..."""
ENTRY_TOLERANCE_PER_MULTIPLIER = 1e-14
LARGEST_ENTRY_TOLERANCE = 1e-10
"""... and of their sums by multipliers, as long as those are not so large that it would show."""
SMALLEST_PIVOT = 1e-8
"""Squared distance of an update (of length 1) to the span of the passive set below which the
cosines, known to 1e-16, no longer give that distance, hence the multiplier, to 1e-7."""
SMALLEST_DISTANCE = 1e-9
"""The same for the triangular factor, which gives distances themselves. An update nearer than
this to the span of the passive set is left violated by no more than this."""


@njit(cache=True)
def solve(
    cosines: Floats, linear: Floats, multipliers: Floats, is_pending: NDArray[np.bool_]
) -> int:
    """Solve in place for all pending targets, starting from `multipliers`; a row for each.

    `linear` are the targets' products with all updates. A target stays pending if `cosines` cannot
    tell its passive set from a dependent one. Returns the number of pivots made.
    """
    size = len(cosines)
    factor = np.zeros((size, size))
    passive = np.zeros(size, np.int64)
    pivots = 0
    for row in range(len(linear)):
        if is_pending[row]:
            made, is_solved = _solve_target(cosines, linear[row], multipliers[row], factor, passive)
            pivots += made
            is_pending[row] = not is_solved
    return pivots


@njit(cache=True)
def _solve_target(
    cosines: Floats, linear: Floats, multipliers: Floats, factor: Floats, passive: NDArray[np.int64]
) -> tuple[int, bool]:
    count = 0
    for client in range(len(cosines)):
        if multipliers[client] > 0.0:
            if _append(cosines, factor, passive, count, client) < SMALLEST_PIVOT:
                multipliers[client] = 0.0
            else:
                count += 1
    count = _minimise(cosines, linear, multipliers, factor, passive, count)
    max_pivots = 10 * len(cosines)  # a few times the cohort is usual; only cycling needs more
    for pivots in range(max_pivots):
        gradient = linear.copy()
        for client in passive[:count]:
            for row in range(len(gradient)):
                gradient[row] += multipliers[client] * cosines[client, row]
        gradient[passive[:count]] = 0.0
        candidate = int(np.argmin(gradient))
        rounding = ENTRY_TOLERANCE + ENTRY_TOLERANCE_PER_MULTIPLIER * multipliers.sum()
        if gradient[candidate] >= -min(rounding, LARGEST_ENTRY_TOLERANCE):
            return pivots, True
        if _append(cosines, factor, passive, count, candidate) < SMALLEST_PIVOT:
            return pivots, False
        count = _minimise(cosines, linear, multipliers, factor, passive, count + 1)
    return max_pivots, False


@njit(cache=True)
def _minimise(
    cosines: Floats,
    linear: Floats,
    multipliers: Floats,
    factor: Floats,
    passive: NDArray[np.int64],
    count: int,
) -> int:
    """Go to the minimum over the passive set; multipliers that meet zero on the way leave it."""
    while True:
        goal = _stationary_point(factor, linear, passive, count)
        step, blocking = 1.0, -1
        for position in range(count):
            here = multipliers[passive[position]]
            if goal[position] <= 0.0 and here < step * (here - goal[position]):
                step, blocking = here / (here - goal[position]), position
        for position in range(count):
            here = multipliers[passive[position]]
            multipliers[passive[position]] = here + step * (goal[position] - here)
        if blocking < 0:
            return count
        multipliers[passive[blocking]] = 0.0
        left, count = passive[blocking:count].copy(), blocking
        for client in left[1:]:
            _append(cosines, factor, passive, count, client)
            count += 1


@njit(cache=True)
def _append(
    cosines: Floats, factor: Floats, passive: NDArray[np.int64], count: int, client: int
) -> float:
    """Extend the factor by a client; returns its squared distance to the span of those before."""
    pivot: float = cosines[client, client]
    for row in range(count):
        value = cosines[client, passive[row]]
        for column in range(row):
            value -= factor[count, column] * factor[row, column]
        factor[count, row] = value / factor[row, row]
        pivot -= factor[count, row] ** 2
    factor[count, count] = np.sqrt(max(pivot, 0.0))
    passive[count] = client
    return pivot


@njit(cache=True)
def _stationary_point(
    factor: Floats, linear: Floats, passive: NDArray[np.int64], count: int
) -> Floats:
    """The multipliers of the passive set at which its constraints hold with equality."""
    point = -linear[passive[:count]]
    for row in range(count):
        for column in range(row):
            point[row] -= factor[row, column] * point[column]
        point[row] /= factor[row, row]
    for row in range(count - 1, -1, -1):
        point[row] /= factor[row, row]
        for column in range(row):
            point[column] -= factor[row, column] * point[row]
    return point


def solve_on_factor(factor: Floats, target: Floats, start: Floats) -> Floats:
    """The multipliers of a target that `solve` left pending, from a factor C = factor' factor.

    The target is given in the coordinates of the factor's columns.

    The same method in plain NumPy, slow and rarely needed: only updates opposite to one another
    but for rounding, or nearly so, leave any pending. Goes on from where `solve` stopped.
    """
    multipliers = start.copy()
    passive: list[int] = np.flatnonzero(multipliers).tolist()
    _minimise_on_factor(factor, target, multipliers, passive)
    for _ in range(10 * factor.shape[1]):
        if not _enter_on_factor(factor, target, multipliers, passive):
            break
    return multipliers


def _enter_on_factor(
    factor: Floats, target: Floats, multipliers: Floats, passive: list[int]
) -> bool:
    """Let the most violated constraint enter that can; False if none is left.

    None can that depends on the passive set, or that would leave it at once. That is so for this
    passive set only: with the next one it is tried again.
    """
    # Not from the multipliers, which may be large and cancel, but by projection.
    basis, _ = np.linalg.qr(factor[:, passive])
    gradient = factor.T @ _without(basis, target)
    gradient[passive] = 0.0
    for candidate in np.argsort(gradient):
        if gradient[candidate] >= -ENTRY_TOLERANCE:
            return False
        if np.linalg.norm(_without(basis, factor[:, candidate])) < SMALLEST_DISTANCE:
            continue
        before = set(passive)
        passive.append(int(candidate))
        _minimise_on_factor(factor, target, multipliers, passive)
        if set(passive) != before:
            return True
    return False


def _minimise_on_factor(
    factor: Floats, target: Floats, multipliers: Floats, passive: list[int]
) -> None:
    while True:
        basis, triangle = np.linalg.qr(factor[:, passive])
        here, goal = multipliers[passive], np.linalg.solve(triangle, -basis.T @ target)
        blocked = np.flatnonzero(goal < 0.0)
        if blocked.size == 0:
            multipliers[passive] = goal
            return
        steps = here[blocked] / (here[blocked] - goal[blocked])
        multipliers[passive] = here + steps.min() * (goal - here)
        multipliers[passive.pop(blocked[np.argmin(steps)])] = 0.0


def _without(basis: Floats, vector: Floats) -> Floats:
    """The part of a vector orthogonal to a basis; projected twice, as once leaves rounding."""
    for _ in range(2):
        vector = vector - basis @ (basis.T @ vector)
    return vector
