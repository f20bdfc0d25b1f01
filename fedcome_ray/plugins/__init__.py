"""Methods, models, samplers and datasets of users: what they are made of, and how they come in.

They come from `--plugin FILE` or from an installed package's entry point in the group
`fedcome_ray.plugins`, which names a module. docs/extending.md writes one of each.
"""

from collections.abc import Iterable

from fedcome_ray.datasets import Dataset, DatasetSettings
from fedcome_ray.datasets.partitions import ClassesPerClient, PartitionConfig
from fedcome_ray.datasets.pooled import Pooled, share_out
from fedcome_ray.datasets.population import (
    Examples,
    Population,
    split,
    split_by_client,
    split_in_order,
)
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import MethodEntry, parts
from fedcome_ray.methods.method import (
    Affine,
    Cohort,
    Info,
    Method,
    Nothing,
    OnlyParams,
    Report,
    affine,
)
from fedcome_ray.models import Model, ModelEntry
from fedcome_ray.models.model import Shape
from fedcome_ray.plugins.modules import all_or_nothing, sources
from fedcome_ray.plugins.things import add
from fedcome_ray.samplers import Sampler, SamplerEntry
from fedcome_ray.samplers.sampler import cohort_of, uniform_cohort

__all__ = [
    "Affine",
    "ClassesPerClient",
    "Cohort",
    "Dataset",
    "DatasetSettings",
    "Examples",
    "Hyperparameters",
    "Info",
    "Method",
    "MethodEntry",
    "Model",
    "ModelEntry",
    "Nothing",
    "OnlyParams",
    "PartitionConfig",
    "Pooled",
    "Population",
    "Report",
    "Sampler",
    "SamplerEntry",
    "Shape",
    "affine",
    "cohort_of",
    "load_plugins",
    "parts",
    "share_out",
    "split",
    "split_by_client",
    "split_in_order",
    "uniform_cohort",
]


def load_plugins(files: Iterable[str] = ()) -> None:
    """Make what is in users' files, and in installed packages, known by name."""
    for load in sources(files):
        with all_or_nothing():
            add(load())
