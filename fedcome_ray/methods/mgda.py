"""MGDA: follow the shortest convex combination of the updates, which conflicts with nobody.

Désidéri, Multiple-gradient descent algorithm, Comptes Rendus Mathématique 2012; for learning,
Sener and Koltun, NeurIPS 2018. https://arxiv.org/abs/1810.04650
"""

from typing import Literal

import numpy as np

from fedcome_ray.methods.fedmgda_plus import min_norm_weights, move_together
from fedcome_ray.methods.method import Method, Nothing, OnlyParams
from fedcome_ray.methods.weighting import Weighted, from_weighting
from fedcome_ray.numerics.geometry import Floats


class MGDA(Weighted):
    """Free weights, and updates as long as they are: unlike FedMGDA+."""

    name: Literal["mgda"] = "mgda"


def build(hp: MGDA) -> Method[OnlyParams, OnlyParams, Nothing]:
    return from_weighting(hp, lambda gram, shares: shortest(gram))


def shortest(gram: Floats) -> Floats:
    """Weights of the shortest convex combination: searched for, then solved for exactly."""
    zeros, ones = np.zeros(len(gram)), np.ones(len(gram))
    weights = min_norm_weights(gram, ones / len(gram), epsilon=1.0)
    return move_together(gram, weights, zeros, ones)
