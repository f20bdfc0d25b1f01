"""Samplers: who takes part in a round. Each goes with every method.

They read the raw updates of reports, and losses where they ask for them, and know neither clients'
data nor models.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Entry, Registry
from fedcome_ray.samplers import clustered, divfl, power_of_choice, similarity, uniform
from fedcome_ray.samplers.clustered import ClusteredSampler
from fedcome_ray.samplers.divfl import DivFL
from fedcome_ray.samplers.power_of_choice import PowerOfChoice
from fedcome_ray.samplers.sampler import AnySampler, Sampler
from fedcome_ray.samplers.similarity import SimilaritySampler
from fedcome_ray.samplers.uniform import RandomSampler

__all__ = [
    "REGISTRY",
    "AnySampler",
    "ClusteredSampler",
    "DivFL",
    "PowerOfChoice",
    "RandomSampler",
    "Sampler",
    "SamplerConfig",
    "SimilaritySampler",
    "build",
]


@dataclass(frozen=True)
class SamplerEntry(Entry[AnySampler]):
    """Its `build` takes the settings."""


REGISTRY: Registry[SamplerEntry] = Registry(
    "sampler",
    [
        SamplerEntry(RandomSampler, uniform.build, "random"),
        SamplerEntry(
            SimilaritySampler,
            similarity.build,
            "similarity",
            compiled="fedcome_ray.samplers.annealing",
        ),
        SamplerEntry(PowerOfChoice, power_of_choice.build, "power-of-choice"),
        SamplerEntry(DivFL, divfl.build, "DivFL"),
        SamplerEntry(ClusteredSampler, clustered.build, "clustered"),
    ],
)


def build(config: Hyperparameters) -> AnySampler:
    """The sampler that a configuration describes."""
    return REGISTRY.of(config).build(config)


SamplerConfig = Annotated[SerializeAsAny[Hyperparameters], PlainValidator(REGISTRY.parse)]
