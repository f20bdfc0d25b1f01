"""FedMGDA+: follow the shortest convex combination of the clients' directions.

With free weights it conflicts with no client. Each weight may differ from FedAvg's by at most
epsilon; directions are normalised, so that nobody gains influence by a long update.

Hu et al., Federated Learning Meets Multi-Objective Optimization, IEEE TNSE 2022.
https://arxiv.org/abs/2006.11489 (Algorithm 1)
"""

from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from fedcome_ray.errors import ConsensusError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report

Floats = NDArray[np.float64]

OPTIMAL = 1e-10
"""Difference of slopes, on the scale of cosines, below which moving weight gains nothing."""
MAX_MOVES = 1_000_000
MOVES_ALONE = 2_000  # usual cohorts need fewer
ROUNDING = 1e-14
"""Weights this close to their limit have reached it."""


class FedMGDAPlus(Hyperparameters):
    """With epsilon 0 the weights are FedAvg's, with 1 they are free."""

    name: Literal["fedmgda_plus"] = "fedmgda_plus"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.1
    """How far a client's weight may be from FedAvg's."""
    server_lr: PositiveFloat = 1.0  # eta
    """The length of a move when all clients agree."""


def build(hp: FedMGDAPlus) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        gram = report.gram.numpy(force=True)
        norms = np.sqrt(gram.diagonal())
        norms = np.where(norms > 0, norms, 1.0)  # an update of zero stays one
        centre = report.weights.double().numpy(force=True)
        weights = min_norm_weights(gram / np.outer(norms, norms), centre / centre.sum(), hp.epsilon)
        move = report.weighted_sum(torch.from_numpy(hp.server_lr * weights / norms))
        info = {"largest_weight": float(weights.max())}
        return OnlyParams(server.params + move), info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )


def min_norm_weights(gram: Floats, centre: Floats, epsilon: float) -> Floats:
    """Weights of sum 1, within epsilon of `centre`, of the shortest combination of unit vectors.

    Weight moves between the two clients whose exchange gains most (sequential minimal
    optimisation, as in support vector machines) until no exchange gains. Where clients are nearly
    dependent exchanges only crawl, so from time to time all weights move together.
    """
    lower, upper = np.maximum(0.0, centre - epsilon), np.minimum(1.0, centre + epsilon)
    weights = centre.copy()
    slope = gram @ weights
    for move in range(MAX_MOVES):
        if move % MOVES_ALONE == MOVES_ALONE - 1:
            weights = move_together(gram, weights, lower, upper)
            slope = gram @ weights
        can_give, can_take = weights - lower > ROUNDING, upper - weights > ROUNDING
        giver = np.where(can_give, slope, -np.inf).argmax()
        taker = np.where(can_take, slope, np.inf).argmin()
        gain = slope[giver] - slope[taker]
        if gain <= OPTIMAL or not (can_give[giver] and can_take[taker]):
            return weights
        curvature = gram[giver, giver] + gram[taker, taker] - 2 * gram[giver, taker]
        best = gain / max(curvature, ROUNDING)  # near duplicates: rounding may hide how near
        amount = min(best, weights[giver] - lower[giver], upper[taker] - weights[taker])
        weights[giver] -= amount
        weights[taker] += amount
        slope += amount * (gram[:, taker] - gram[:, giver])
    raise ConsensusError(
        f"no minimum-norm weights for a cohort of {len(gram)} after {MAX_MOVES} moves"
    )


def move_together(gram: Floats, weights: Floats, lower: Floats, upper: Floats) -> Floats:
    """To the best weights for the clients inside their limits, or as far as the limits allow."""
    inside = np.flatnonzero((weights - lower > ROUNDING) & (upper - weights > ROUNDING))
    ones = np.ones((len(inside), 1))
    system = np.block([[gram[np.ix_(inside, inside)], ones], [ones.T, np.zeros((1, 1))]])
    goal = np.append(-(gram @ weights)[inside], 0.0)
    way = np.linalg.lstsq(system, goal)[0][:-1]
    room = np.where(way > 0, upper[inside] - weights[inside], weights[inside] - lower[inside])
    share = np.min(room / np.maximum(np.abs(way), room), initial=1.0)
    moved = weights.copy()
    moved[inside] += share * way
    return moved
