"""FairGrad: weights by which clients gain fairly, in the sense of alpha-fair shares of a resource.

A client's gain is the product of its update and the move. Its weight is its gain to the power
-alpha: the less a client gains, the more it counts.

Ban and Ji, Fair Resource Allocation in Multi-Task Learning, ICML 2024.
https://arxiv.org/abs/2402.15638 (equation 4)
"""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from fedcome_ray.errors import ConsensusError
from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats

STATIONARY = 1e-12
"""Newton's decrement, the square of the last step on the scale of weights: the next would be of
the size of its square."""
MAX_STEPS = 500  # some ten are usual
OPPOSED = 1e7
"""Weights so much larger than those of orthogonal updates nearly cancel: there is no direction in
which all gain, and the move is zero but for rounding."""


class FairGrad(Weighted):
    """How fair: 1 is Nash-MTL, the larger the nearer to equal gains."""

    name: Literal["fairgrad"] = "fairgrad"
    alpha: PositiveFloat = 2.0
    """The larger, the more clients count that gain little."""


def build(hp: FairGrad) -> Method[OnlyParams, OnlyParams, Nothing]:
    def weigh(gram: Floats, shares: Floats) -> Floats:
        return fair_weights(gram, hp.alpha)

    return from_weighting(hp, weigh)


def fair_weights(gram: Floats, alpha: float) -> Floats:
    """Those with gram @ weights = weights ** (-1 / alpha), scaled to sum 1.

    That equation is the stationarity of a strictly convex function on positive weights,
    1/2 w' gram w - sum(w^p / p) with p = 1 - 1/alpha, or the logarithm for p = 0: Newton's method
    finds its only solution. Zero updates gain nothing whatever their weight, which is zero.
    """
    weights: Floats = np.zeros(len(gram))
    moved = gram.diagonal() > 0.0
    if not moved.all():
        weights[moved] = fair_weights(gram[np.ix_(moved, moved)], alpha)
        return weights
    power = 1.0 / alpha
    weights += gram.diagonal() ** (-1.0 / (1.0 + power))  # the solution for orthogonal updates
    largest = OPPOSED * float(weights.sum())
    for _ in range(MAX_STEPS):
        slope = gram @ weights - weights**-power
        curvature = gram + np.diag(power * weights ** (-power - 1.0))
        step = np.linalg.solve(curvature, -slope).astype(np.float64)
        decrement = -float(slope @ step) / float(weights @ weights**-power)
        weights = weights + _step_size(gram, weights, step, power) * step
        total = float(weights.sum())
        if decrement < STATIONARY or total > largest:
            return weights / total
    raise ConsensusError(f"no fair weights for a cohort of {len(gram)} after {MAX_STEPS} steps")


def _step_size(gram: Floats, weights: Floats, step: Floats, power: float) -> float:
    """The largest of 1, 1/2, 1/4, ... at which weights are positive and the slope still points on.

    The function is convex: as long as the slope along the step is not positive it has decreased.
    """
    size = 1.0
    for _ in range(60):
        new = weights + size * step
        if (new > 0.0).all():
            along = float((gram @ new - new**-power) @ step)
            before = float((gram @ weights - weights**-power) @ step)
            if along <= -0.5 * before:
                return size
        size /= 2.0
    return size
