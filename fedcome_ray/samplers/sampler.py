"""The interface of a sampler: who takes part in a round, and what it learns from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.geometry import Floats

Clients = NDArray[np.int64]
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Sampler(Generic[StateT]):
    """Pure functions. States are named tuples of arrays and ints, and never written to."""

    init: Callable[[int], StateT]
    """(num_clients) -> what the sampler remembers before the first round"""
    sample: Callable[[StateT, int, np.random.Generator], Cohort]
    """(state, cohort_size, rng) -> the clients of the next round"""
    learn: Callable[[StateT, Cohort, Report], StateT]
    """(state, cohort, report) -> what it remembers after a round"""
    choose: Callable[[Cohort, Floats, int], Cohort] | None = None
    """(candidates, their losses, cohort_size) -> the clients of the next round, if `sample` draws
    only candidates; their losses, of the server's params, cost each a pass over its examples"""


AnySampler = Sampler[Any]


def uniform_cohort(num_clients: int, size: int, rng: np.random.Generator) -> Cohort:
    """Any clients, each as likely as another."""
    if not 1 <= size <= num_clients:
        raise ValueError(
            f"the cohort size must be between 1 and num_clients = {num_clients}, got {size}"
        )
    return cohort_of(rng.choice(num_clients, size, replace=False))


def cohort_of(clients: Clients) -> Cohort:
    """Clients in increasing order, as cohorts are."""
    return tuple(np.sort(clients).tolist())
