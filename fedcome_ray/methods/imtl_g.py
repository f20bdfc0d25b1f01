"""IMTL-G: weights of sum 1 by which the move has the same projection on every update.

Liu et al., Towards Impartial Multi-task Learning, ICLR 2021; for dependent updates as in
https://arxiv.org/abs/2406.16232
"""

from typing import Literal

from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.torchjd_weights import check_installed, weights_by
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats


class IMTLG(Weighted):
    """Equal projections."""

    name: Literal["imtl_g"] = "imtl_g"


def build(hp: IMTLG) -> Method[OnlyParams, OnlyParams, Nothing]:
    check_installed(hp.name)

    def weigh(gram: Floats, shares: Floats) -> Floats:
        return weights_by("IMTLGWeighting", gram)

    return from_weighting(hp, weigh)
