"""Clustered sampling: one client from each of as many groups as there are places, by update angle.

Every client takes part with the same probability, as in `random`, but clients with similar updates
seldom together, so cohorts vary less.

Fraboni et al., Clustered Sampling: Low-Variance and Improved Representativity for Clients
Selection in Federated Learning, ICML 2021. https://arxiv.org/abs/2105.05883 (Algorithm 2)
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Cohort
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.samplers import sketches
from fedcome_ray.samplers.sampler import Sampler, cohort_of, uniform_cohort
from fedcome_ray.samplers.sketches import Sketches


class ClusteredSampler(Hyperparameters):
    """Groups of clients by Ward's hierarchical clustering."""

    name: Literal["clustered"] = "clustered"


def build(hp: ClusteredSampler) -> Sampler[Sketches]:
    def sample(state: Sketches, size: int, rng: np.random.Generator) -> Cohort:
        num_clients = len(state.rows)
        if size == num_clients or not state.is_seen.any():
            return uniform_cohort(num_clients, size, rng)
        chosen: list[int] = []
        for masses in urns(clusters(angles(state.rows), size), size):
            masses[chosen] = 0  # whom two urns share is drawn once
            chosen.append(int(rng.choice(num_clients, p=masses / masses.sum())))
        return cohort_of(np.array(chosen))

    return Sampler(init=sketches.nobodys, sample=sample, learn=sketches.learnt)


def angles(rows: NDArray[np.float32]) -> Floats:
    """Between all pairs; a right angle to those not seen, who are like each other."""
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    wide /= np.where(norms > 0.0, norms, 1.0)[:, None]
    found = np.arccos(np.clip(wide @ wide.T, -1.0, 1.0))
    is_unknown = norms == 0.0
    found[np.ix_(is_unknown, is_unknown)] = 0.0
    np.fill_diagonal(found, 0.0)
    return (found + found.T) / 2.0


def clusters(distance: Floats, size: int) -> NDArray[np.int64]:
    """The number of each client's cluster: the largest branches that do not outweigh a place."""
    from scipy.cluster import hierarchy  # slow to import, and only servers need it
    from scipy.spatial.distance import squareform

    found = np.empty(len(distance), np.int64)
    branches = [hierarchy.to_tree(hierarchy.linkage(squareform(distance, checks=False), "ward"))]
    number = 0
    while branches:
        branch = branches.pop()
        if branch.count * size > len(distance):
            branches += [branch.right, branch.left]
        else:
            found[branch.pre_order()] = number
            number += 1
    return found


def urns(cluster: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """How much of each client is in the urn of each place, `[size, num_clients]`.

    A client has the mass `size`, an urn room for `num_clients`. The largest clusters have an urn
    each, the others fill what is left, client by client; who does not fit is shared by two urns.
    """
    num_clients = len(cluster)
    _, cluster, counts = np.unique(cluster, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    rank = rank[cluster]  # of each client's cluster, the largest first
    masses = np.zeros((size, num_clients), np.int64)
    own = np.flatnonzero(rank < size)
    masses[rank[own], own] = size
    room = num_clients - masses.sum(axis=1)
    urn = 0
    for client in np.argsort(rank, kind="stable")[len(own) :]:
        left = size
        while left > 0:
            poured = min(left, int(room[urn]))
            masses[urn, client] += poured
            room[urn] -= poured
            left -= poured
            urn += room[urn] == 0 and left > 0
    return masses
