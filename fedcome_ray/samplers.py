from typing import Annotated, Literal, NamedTuple, Any
from dataclasses import dataclass
import numpy as np
from pydantic import Field
from fedcome_ray.hyperparameters import Hyperparameters


class RandomSampler(Hyperparameters):
    name: Literal["random"] = "random"


class SimilaritySampler(Hyperparameters):
    name: Literal["similarity"] = "similarity"
    greedy_fraction: float = 0.7
    ema: float = 0.5


SamplerConfig = Annotated[RandomSampler | SimilaritySampler, Field(discriminator="name")]


class S(NamedTuple):
    num_clients: int


@dataclass
class Sampler:
    init: Any
    sample: Any
    learn: Any


def build(c):
    return Sampler(
        lambda n: S(n),
        lambda s, k, rng: tuple(sorted(rng.choice(s.num_clients, k, replace=False).tolist())),
        lambda s, c, r: s,
    )
