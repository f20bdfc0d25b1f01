"""The plain sampler: every cohort is drawn uniformly, and nothing is learnt."""

from typing import Literal, NamedTuple

import numpy as np

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.samplers.sampler import Sampler, uniform_cohort


class RandomSampler(Hyperparameters):
    """Every cohort is as likely as any other."""

    name: Literal["random"] = "random"


class Size(NamedTuple):
    """All that there is to remember."""

    num_clients: int


def build(hp: RandomSampler) -> Sampler[Size]:
    def sample(state: Size, size: int, rng: np.random.Generator) -> Cohort:
        return uniform_cohort(state.num_clients, size, rng)

    def learn(state: Size, cohort: Cohort, report: Report) -> Size:
        return state

    return Sampler(init=Size, sample=sample, learn=learn)
