"""Settings chosen by name: methods and models, ours and those of plugins."""

from collections.abc import Mapping
from typing import Protocol

from pydantic_core import PydanticCustomError

from fedcome_ray.errors import did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters


class Entry(Protocol):
    """What a registry knows of a name: at least the class of its settings."""

    @property
    def config(self) -> type[Hyperparameters]: ...


def parse(kind: str, registry: Mapping[str, Entry], value: object) -> Hyperparameters:
    """The settings of the method, or model, that a mapping names."""
    if isinstance(value, Hyperparameters):
        return value
    if not isinstance(value, dict) or "name" not in value:
        raise PydanticCustomError(kind, f"a {kind} is given by `{kind}.name` and its settings")
    name = str(value["name"])
    if name not in registry:
        allowed = did_you_mean(name, registry)
        raise PydanticCustomError(
            kind,
            f"unknown {kind} `{{name}}`; {{allowed}}",
            {"name": value["name"], "allowed": allowed},
        )
    return registry[name].config.model_validate(value)
