"""Nash-MTL: the move on which clients would agree in a bargain, with the largest product of gains.

Navon et al., Multi-Task Learning as a Bargaining Game, ICML 2022.
https://arxiv.org/abs/2202.01017 (Algorithm 1)
"""

from typing import Literal

from fedcome_ray.methods.fairgrad import fair_weights
from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats


class NashMTL(Weighted):
    """The length of updates does not count: their gains are multiplied."""

    name: Literal["nash_mtl"] = "nash_mtl"


def build(hp: NashMTL) -> Method[OnlyParams, OnlyParams, Nothing]:
    def weigh(gram: Floats, shares: Floats) -> Floats:
        # gram @ weights = 1 / weights: each client's weight is the inverse of its gain.
        return fair_weights(gram, alpha=1.0)

    return from_weighting(hp, weigh)
