"""What there is to choose by name in a trial, and the settings that each choice has."""

from collections.abc import Mapping
from typing import Any

from fedcome_ray import datasets, methods, models, samplers
from fedcome_ray.datasets import partitions
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Registry

CHOICES: Mapping[str, Registry[Any]] = {
    "data": datasets.REGISTRY,
    "data.partition": partitions.REGISTRY,
    "model": models.REGISTRY,
    "method": methods.REGISTRY,
    "sampler": samplers.REGISTRY,
}
"""By the dotted name of the setting."""


def description(record: type[Hyperparameters], field: str) -> str:
    """The text below a field, or below the one of the same name that it replaces."""
    bases = [base for base in record.__mro__ if issubclass(base, Hyperparameters)]
    texts = [base.model_fields[field].description for base in bases if field in base.model_fields]
    return " ".join(next((text for text in texts if text), "").split())


def first_sentence(text: str | None) -> str:
    """Of a docstring."""
    return " ".join((text or "").split("\n\n")[0].split())
