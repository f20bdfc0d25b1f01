"""CAGrad: near the mean update, the move by which the client that gains least gains most.

Liu et al., Conflict-Averse Gradient Descent for Multi-task Learning, NeurIPS 2021.
https://arxiv.org/abs/2110.14048 (Algorithm 1)
"""

from typing import Literal

from pydantic import NonNegativeFloat

from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.torchjd_weights import check_installed, weights_by
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats


class CAGrad(Weighted):
    """How near; with 0 it is FedAvg with equal weights."""

    name: Literal["cagrad"] = "cagrad"
    c: NonNegativeFloat = 0.5
    """How far from the mean the move may be, in lengths of the mean."""


def build(hp: CAGrad) -> Method[OnlyParams, OnlyParams, Nothing]:
    check_installed(hp.name)

    def weigh(gram: Floats, shares: Floats) -> Floats:
        return weights_by("CAGradWeighting", gram, c=hp.c)

    return from_weighting(hp, weigh)
