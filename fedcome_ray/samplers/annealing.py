"""Simulated annealing: a subset of clients whose updates point in different directions.

The energy of a subset is the sum of the similarities of all ordered pairs in it, each client with
itself included. Both annealers are compiled and take their random numbers drawn beforehand, so
that NumPy's generator decides everything and the clients that can be met are known in advance.

`subset` and `others` hold rows of `similarity`; a proposal swaps positions of the one with
positions of the other.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedcome_ray.numerics.geometry import Floats

Positions = NDArray[np.int64]

LAST_TEMPERATURE = 1e-3
"""The first is 1, the scale of similarities."""
OFFICIAL_ANNEALING = 530
"""Proposals while 10,000 x 0.97^n exceeds 0.001."""
OFFICIAL_PROPOSALS = OFFICIAL_ANNEALING + 1000


@njit(cache=True)
def anneal(
    similarity: Floats,
    subset: Positions,
    others: Positions,
    leaving: Positions,  # [moves, 1], positions in the subset
    entering: Positions,  # [moves, 1], positions in the others
    uniforms: Floats,  # [moves]
) -> Positions:
    """The best subset met on a walk that swaps one client at a time."""
    subset, others = subset.copy(), others.copy()
    best, energy, best_energy = subset.copy(), 0.0, 0.0  # relative to the start's
    cooling = LAST_TEMPERATURE ** (1.0 / len(leaving))
    temperature = 1.0
    for move in range(len(leaving)):
        leaver, enterer = leaving[move, 0], entering[move, 0]
        old, new = subset[leaver], others[enterer]
        change = similarity[new, new] - similarity[old, old]
        for client in subset:
            if client != old:
                change += 2.0 * (similarity[new, client] - similarity[old, client])
        if change <= 0.0 or uniforms[move] < np.exp(-change / temperature):
            subset[leaver], others[enterer] = new, old
            energy += change
            if energy < best_energy:
                best, best_energy = subset.copy(), energy
        temperature *= cooling
    return best


@njit(cache=True)
def anneal_officially(
    similarity: Floats,
    subset: Positions,
    others: Positions,
    leaving: Positions,  # [OFFICIAL_PROPOSALS, 2]
    entering: Positions,  # [OFFICIAL_PROPOSALS, 2]
    uniforms: Floats,  # [OFFICIAL_PROPOSALS]
) -> Positions:
    """The annealer of the authors' code, literally, with what is odd about it.

    Two clients are swapped at a time. The start is not scored: the best energy begins at the
    square of the subset's size. A proposal better than the best so far is remembered, but the
    walk does not move there. The last 1000 proposals are neighbours of where the walk ended.
    """
    subset, others = subset.copy(), others.copy()
    energy = _energy(similarity, subset)
    best, best_energy = subset.copy(), float(len(subset) ** 2)
    temperature = 10_000.0
    for proposal in range(len(leaving)):
        new = subset.copy()
        new[leaving[proposal]] = others[entering[proposal]]
        new_energy = _energy(similarity, new)
        if new_energy < best_energy:
            best, best_energy = new, new_energy
        elif proposal < OFFICIAL_ANNEALING and -(new_energy - energy) / temperature > np.log(
            uniforms[proposal]
        ):
            others[entering[proposal]] = subset[leaving[proposal]]
            subset, energy = new, new_energy
        temperature *= 0.97
    return best


@njit(cache=True)
def _energy(similarity: Floats, subset: Positions) -> float:
    energy = 0.0
    for first in subset:
        for second in subset:
            energy += similarity[first, second]
    return energy
