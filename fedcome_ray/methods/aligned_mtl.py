"""Aligned-MTL: the mean of updates made orthogonal and equally long, changed as little as can be.

All principal components of the updates are scaled to the length of the shortest.

Senushkin et al., Independent Component Alignment for Multi-Task Learning, CVPR 2023.
https://arxiv.org/abs/2305.19000 (Algorithm 1)
"""

from typing import Literal

import torch

from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.torchjd_weights import check_installed, weights_by
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats


class AlignedMTL(Weighted):
    """Components of equal length."""

    name: Literal["aligned_mtl"] = "aligned_mtl"
    scale_mode: Literal["min", "median", "rmse"] = "min"
    """Of the components' squared lengths, the one that all get: `rmse` is their mean."""


def build(hp: AlignedMTL) -> Method[OnlyParams, OnlyParams, Nothing]:
    check_installed(hp.name)

    def weigh(gram: Floats, shares: Floats) -> Floats:
        preference = torch.from_numpy(shares)
        return weights_by(
            "AlignedMTLWeighting", gram, pref_vector=preference, scale_mode=hp.scale_mode
        )

    return from_weighting(hp, weigh)
