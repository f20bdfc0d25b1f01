"""DivFL: the cohort whose updates represent everybody's best, by greedy facility location.

Balakrishnan et al., Diverse Client Selection for Federated Learning via Submodular Maximization,
ICLR 2022. https://openreview.net/forum?id=nwKXyFvaUm
"""

from typing import Literal

import numpy as np

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Cohort
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.samplers import sketches
from fedcome_ray.samplers.sampler import Clients, Sampler, cohort_of
from fedcome_ray.samplers.sketches import Sketches


class DivFL(Hyperparameters):
    """Every client's last update should be near that of some member of the cohort."""

    name: Literal["divfl"] = "divfl"


def build(hp: DivFL) -> Sampler[Sketches]:
    def sample(state: Sketches, size: int, rng: np.random.Generator) -> Cohort:
        # The publication begins with an update of everybody; here, who is unknown comes first.
        shuffled = rng.permutation(len(state.rows))
        unseen = shuffled[~state.is_seen[shuffled]][:size]
        missing = size - len(unseen)
        if missing == 0:
            return cohort_of(unseen)
        known = shuffled[state.is_seen[shuffled]]
        chosen = greedy_facilities(distances(state.rows[known]), missing)
        return cohort_of(np.concatenate((unseen, known[chosen])))

    return Sampler(init=sketches.nobodys, sample=sample, learn=sketches.learnt)


def distances(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Floats:
    """Between all pairs of rows."""
    wide = rows.astype(np.float64)
    products = wide @ wide.T
    squares = products.diagonal()
    return np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * products, 0.0))


def greedy_facilities(distance: Floats, count: int) -> Clients:
    """One after the other, the place that shortens most the ways of all to the nearest place."""
    nearest = distance.max(axis=1, initial=0.0) + 1.0  # farther than any place
    is_free = np.ones(len(distance), np.bool_)
    chosen = []
    for _ in range(count):
        ways = np.minimum(distance, nearest[:, None]).sum(axis=0)
        best = int(np.where(is_free, ways, np.inf).argmin())
        is_free[best] = False
        nearest = np.minimum(nearest, distance[:, best])
        chosen.append(best)
    return np.array(chosen)
