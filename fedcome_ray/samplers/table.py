"""What the similarity sampler remembers: a moving average of cosines for each pair of clients.

Two forms of one symmetric table. The dense one is a matrix, for populations small enough to copy
it every round. The sparse one lists only the pairs that ever took part together, sorted, so that
one client's pairs are neighbours: its memory is 16 bytes for each pair seen, whatever the
population, and a round merges its pairs into a copy of the list in one sweep.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.samplers.sampler import Clients

LARGEST_DENSE_POPULATION = 1000
"""8 MB to copy every round; beyond, a table is mostly pairs never seen together."""


class DenseTable(NamedTuple):
    num_rounds: int
    values: Floats  # [num_clients, num_clients]

    @property
    def num_clients(self) -> int:
        return len(self.values)


class SparseTable(NamedTuple):
    num_rounds: int
    num_clients: int
    pairs: NDArray[np.int64]  # [pairs], increasing; first * num_clients + second, first <= second
    values: Floats  # [pairs]


Table = DenseTable | SparseTable


def empty(num_clients: int) -> Table:
    if num_clients <= LARGEST_DENSE_POPULATION:
        return DenseTable(0, np.zeros((num_clients, num_clients)))
    return SparseTable(0, num_clients, np.zeros(0, np.int64), np.zeros(0))


def among(table: Table, clients: Clients) -> Floats:
    """The table of some clients only, in the order given; pairs never seen are zero."""
    if isinstance(table, DenseTable):
        return table.values[np.ix_(clients, clients)]
    position = np.full(table.num_clients, -1)
    position[clients] = np.arange(len(clients))
    starts = np.searchsorted(table.pairs, clients * table.num_clients)
    stops = np.searchsorted(table.pairs, (clients + 1) * table.num_clients)
    counts = stops - starts
    rows = np.repeat(np.arange(len(clients)), counts)
    indices = np.arange(len(rows)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    columns = position[table.pairs[indices] % table.num_clients]
    is_wanted = columns >= 0
    rows, columns = rows[is_wanted], columns[is_wanted]
    values = np.zeros((len(clients), len(clients)))
    values[rows, columns] = values[columns, rows] = table.values[indices[is_wanted]]
    return values


def blend(table: Table, cohort: Clients, cosines: Floats, ema: float) -> Table:
    """The table after a round: `ema` of the old value and the rest of the new, for its pairs."""
    if isinstance(table, DenseTable):
        values = table.values.copy()
        block = np.ix_(cohort, cohort)
        values[block] = ema * values[block] + (1.0 - ema) * cosines
        return DenseTable(table.num_rounds + 1, values)
    first, second = np.triu_indices(len(cohort))
    seen = cohort[first] * table.num_clients + cohort[second]  # increasing, as the cohort is
    places = np.searchsorted(table.pairs, seen)
    is_new = np.searchsorted(table.pairs, seen, side="right") == places
    pairs = np.insert(table.pairs, places[is_new], seen[is_new])
    values = np.insert(table.values, places[is_new], 0.0)
    places = np.searchsorted(pairs, seen)
    values[places] = ema * values[places] + (1.0 - ema) * cosines[first, second]
    return SparseTable(table.num_rounds + 1, table.num_clients, pairs, values)
