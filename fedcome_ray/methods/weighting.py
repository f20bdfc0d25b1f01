"""Methods that only weigh: a round moves the params by a combination of the cohort's updates.

The weights follow from the updates' inner products, so beyond the one pass over the params that
forms these, and one weighted sum, nothing is of size dim.
"""

from collections.abc import Callable

import numpy as np
import torch
from pydantic import PositiveFloat

from fedcome_ray import metrics
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.numerics import geometry
from fedcome_ray.numerics.geometry import Floats

Weighting = Callable[[Floats, Floats], Floats]
"""(gram, shares) -> weights, `[cohort]`; gram has mean diagonal 1, shares are by examples, sum 1"""


class Weighted(Hyperparameters):
    """What these methods have in common."""

    server_lr: PositiveFloat = 1.0
    """Factor of the move."""
    match_norm: bool = False
    """Rescale the move to the plain mean's length: a control for longer and shorter steps."""


def from_weighting(hp: Weighted, weigh: Weighting) -> Method[OnlyParams, OnlyParams, Nothing]:
    """The method that moves by these weights."""

    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        move, info = weighted_move(hp, report, weigh)
        return OnlyParams(server.params + move), info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )


def weighted_move(hp: Weighted, report: Report, weigh: Weighting) -> tuple[torch.Tensor, Info]:
    """By what the params move, and what a human may want to know."""
    cosines, norms = geometry.normalise(report.gram)
    shares = report.weights.double().numpy(force=True)
    plain_length = geometry.length(shares * norms, cosines)
    scale = float(np.sqrt(np.mean(norms**2)))
    if scale == 0.0:  # nobody moved
        return torch.zeros_like(report.update[0]), {metrics.STEP_RATIO: 1.0}
    lengths = norms / scale  # of the updates, on a scale on which no method's tolerance shows
    weights = weigh(cosines * np.outer(lengths, lengths), shares)
    length = geometry.length(weights * norms, cosines)
    if hp.match_norm and length > 0.0:
        weights = weights * (plain_length / length)
    move = report.weighted_sum(torch.from_numpy(hp.server_lr * weights))
    ratio = length / plain_length if plain_length > 0.0 else 1.0
    return move, {metrics.STEP_RATIO: ratio}
