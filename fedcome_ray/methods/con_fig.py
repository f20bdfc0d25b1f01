"""ConFIG: the direction with the same angle to every update, as long as the mean reaches along it.

Liu et al., ConFIG: Towards Conflict-free Training of Physics Informed Neural Networks, ICLR 2025.
https://arxiv.org/abs/2408.11104 (equation 2)
"""

from typing import Literal

import numpy as np

from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats, length, nonzero


class ConFIG(Weighted):
    """Equal angles."""

    name: Literal["con_fig"] = "con_fig"


def build(hp: ConFIG) -> Method[OnlyParams, OnlyParams, Nothing]:
    return from_weighting(hp, equal_angles)


def equal_angles(gram: Floats, shares: Floats) -> Floats:
    """Weights of the direction that has the same product with all updates scaled to length 1."""
    norms = nonzero(np.sqrt(gram.diagonal()))
    cosines = gram / np.outer(norms, norms)
    # With the unit vectors as rows of U: pinv(U) 1 = U' pinv(U U') 1.
    direction = np.linalg.pinv(cosines, rcond=len(gram) * 1e-15, hermitian=True).sum(axis=1)
    own_length = length(direction, cosines)
    if own_length == 0.0:
        return np.zeros(len(gram))
    weights: Floats = direction / own_length / norms
    return float(shares @ gram @ weights) * weights
