"""Samplers: who takes part in a round. Either goes with every method.

They read the raw updates of reports, and know neither clients' data nor models.
"""

from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Entry, Registry
from fedcome_ray.samplers import similarity, uniform
from fedcome_ray.samplers.sampler import AnySampler, Sampler
from fedcome_ray.samplers.similarity import SimilaritySampler
from fedcome_ray.samplers.uniform import RandomSampler

__all__ = [
    "REGISTRY",
    "AnySampler",
    "RandomSampler",
    "Sampler",
    "SamplerConfig",
    "SimilaritySampler",
    "build",
]

SamplerEntry = Entry[AnySampler]

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
    ],
)


def build(config: Hyperparameters) -> AnySampler:
    """The sampler that a configuration describes."""
    return REGISTRY.of(config).build(config)


SamplerConfig = Annotated[SerializeAsAny[Hyperparameters], PlainValidator(REGISTRY.parse)]
