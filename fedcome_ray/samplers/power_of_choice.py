"""Power-of-choice: of some candidates, those with the largest losses take part.

Cho et al., Towards Understanding Biased Client Selection in Federated Learning, AISTATS 2022.
https://arxiv.org/abs/2010.01243
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.geometry import Floats
from fedcome_ray.samplers.sampler import Sampler, cohort_of, uniform_cohort
from fedcome_ray.samplers.uniform import Size


class PowerOfChoice(Hyperparameters):
    """How many candidates; with one for each place it is `random`."""

    name: Literal["power_of_choice"] = "power_of_choice"
    candidates: Annotated[float, Field(ge=1.0)] = 2.0  # d / m
    """Candidates for each place in the cohort, at most all clients: each computes its loss."""


def build(hp: PowerOfChoice) -> Sampler[Size]:
    def sample(state: Size, size: int, rng: np.random.Generator) -> Cohort:
        num_candidates = min(state.num_clients, math.ceil(hp.candidates * size - 1e-9))
        return uniform_cohort(state.num_clients, num_candidates, rng)

    def choose(candidates: Cohort, losses: Floats, size: int) -> Cohort:
        worst_first = np.argsort(-losses, kind="stable")
        return cohort_of(np.array(candidates)[worst_first[:size]])

    def learn(state: Size, cohort: Cohort, report: Report) -> Size:
        return state

    return Sampler(init=Size, sample=sample, learn=learn, choose=choose)
