"""The client sampler of the FedCOME paper.

It remembers how similar the updates of clients were, and draws most of a cohort so that its
members disagree, by simulated annealing, and the rest uniformly.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from fedcome_ray.errors import ConfigError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics import geometry
from fedcome_ray.samplers import table as tables
from fedcome_ray.samplers.sampler import Clients, Sampler, cohort_of, uniform_cohort
from fedcome_ray.samplers.table import Table


class SimilaritySampler(Hyperparameters):
    """Cohorts of clients whose updates are unlike each other, as far as is known."""

    name: Literal["similarity"] = "similarity"
    greedy_fraction: Annotated[float, Field(ge=0.0, le=1.0)] = 0.7  # mu
    """Share of the cohort chosen by annealing."""
    ema: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5  # alpha
    """Weight of the past in the table of similarities."""
    moves: PositiveInt = 600
    """Steps of the annealing."""
    include_diagonal: bool = True
    """Count a client's similarity to itself, which grows as it takes part: favours the others."""
    variant: Literal["clean", "official"] = "clean"
    """`official` anneals as the authors' code does, with its own number of moves."""
    warmup: NonNegativeInt = 0
    """Rounds with anybody there that draw uniformly, before the table is used."""


def build(hp: SimilaritySampler) -> Sampler[Table]:
    def sample(table: Table, size: int, rng: np.random.Generator) -> Cohort:
        num_greedy = int(hp.greedy_fraction * size + 1e-9)  # 0.7 * 90 is 62.999...
        if table.num_rounds < hp.warmup or num_greedy == 0 or size >= table.num_clients:
            return uniform_cohort(table.num_clients, size, rng)
        greedy = _anneal(hp, table, num_greedy, rng)
        others = np.delete(np.arange(table.num_clients), greedy)
        rest = rng.choice(others, size - num_greedy, replace=False)
        return cohort_of(np.concatenate((greedy, rest)))

    def learn(table: Table, cohort: Cohort, report: Report) -> Table:
        cosines, _ = geometry.normalise(report.gram)
        return tables.blend(table, np.array(cohort), cosines, hp.ema)

    return Sampler(init=tables.empty, sample=sample, learn=learn)


def _anneal(hp: SimilaritySampler, table: Table, size: int, rng: np.random.Generator) -> Clients:
    from fedcome_ray.samplers import annealing  # compiled: slow to import, and only servers need it

    walk, num_proposals, num_swapped = (
        (annealing.anneal, hp.moves, 1)
        if hp.variant == "clean"
        else (annealing.anneal_officially, annealing.OFFICIAL_PROPOSALS, 2)
    )
    num_others = table.num_clients - size
    if min(size, num_others) < num_swapped:
        raise ConfigError(
            f"`variant: official` swaps two clients at a time, which {size} annealed of "
            f"{table.num_clients} do not allow; use `variant: clean` or another cohort size"
        )
    clients = rng.permutation(table.num_clients)  # the first `size` are the start of the walk
    leaving = _distinct_positions(size, num_proposals, num_swapped, rng)
    entering = _distinct_positions(num_others, num_proposals, num_swapped, rng)
    uniforms = 1.0 - rng.random(num_proposals)  # above zero, for their logarithm
    # Who can be met on the way is known, so only their part of the table is looked up.
    met, entering_met = np.unique(entering, return_inverse=True)
    pool = np.concatenate((clients[:size], clients[size + met]))
    energies = tables.among(table, pool)
    if not hp.include_diagonal:
        np.fill_diagonal(energies, 0.0)
    start, others = np.arange(size), np.arange(size, len(pool))
    best = walk(energies, start, others, leaving, entering_met.reshape(entering.shape), uniforms)
    return pool[best]


def _distinct_positions(
    bound: int, num_proposals: int, num_swapped: int, rng: np.random.Generator
) -> Clients:
    """Uniform positions below `bound`, `[num_proposals, num_swapped]`; one or two, distinct."""
    positions = rng.integers(bound - np.arange(num_swapped), size=(num_proposals, num_swapped))
    positions[:, 1:] += positions[:, 1:] >= positions[:, :1]  # skip the place of the first
    return positions
