"""A user's sampler: watched in every round, and rehearsed with six clients before the first."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedcome_ray.methods.method import Report
from fedcome_ray.plugins.watch import (
    Check,
    Function,
    complaint_about,
    shown,
    tried,
    watched_thing,
)
from fedcome_ray.samplers.sampler import AnySampler, Sampler

NUM_CLIENTS, DIM = 6, 7


def watched(build: Function) -> Callable[[Any], AnySampler]:
    """The same `build`, whose sampler says where it fails and is known to keep to the contract."""
    return watched_thing(build, _is_sampler, CHECKS, rehearse)


def rehearse(sampler: AnySampler) -> None:
    """Rounds with few clients and with all: cohorts depend on state and generator alone."""
    rng = np.random.default_rng(0)
    state = tried(sampler.init, NUM_CLIENTS)
    for number, size in enumerate((3, 1, NUM_CLIENTS, 3)):
        cohort = tried(sampler.sample, state, size, np.random.default_rng(number))
        if cohort[-1] >= NUM_CLIENTS:
            raise complaint_about(
                sampler.sample, f"returned client {cohort[-1]}, of {NUM_CLIENTS} clients from 0 on"
            )
        update = torch.from_numpy(rng.standard_normal((size, DIM), np.float32))
        column = torch.from_numpy(rng.uniform(1, 2, (size, 1)).astype(np.float32))
        state = tried(sampler.learn, state, cohort, Report(update, column, column, column))


def _is_sampler(result: object, _hyperparameters: object) -> str | None:
    if isinstance(result, Sampler):
        return None
    return f"returned {shown(result)}, expected a `Sampler`"


def _is_state(result: object, *_arguments: object) -> str | None:
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return None
    return f"returned {shown(result)}, expected a named tuple"


def _is_cohort(result: object, _state: object, size: int, _rng: object) -> str | None:
    if not (isinstance(result, tuple) and all(type(client) is int for client in result)):
        return f"returned {shown(result)}, expected a tuple of integers; `cohort_of` makes one"
    if len(result) != size:
        return f"returned {len(result)} clients, expected {size}"
    if sorted({*result}) != list(result) or result[0] < 0:
        return f"returned {result}, expected different clients in increasing order, from 0 on"
    return None


def _is_next_state(result: object, state: object, *_others: object) -> str | None:
    if type(result) is type(state):
        return None
    return f"returned {shown(result)}, expected a `{type(state).__name__}`"


CHECKS: dict[str, Check] = {"init": _is_state, "sample": _is_cohort, "learn": _is_next_state}
