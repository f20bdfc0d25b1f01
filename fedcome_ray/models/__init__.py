"""The models, by name.

A model is a class of hyper-parameters, whose `name` has a default, and a function that builds it
for examples of a given shape. A user's own model joins with `register`, and a `torch.nn.Module`
becomes a model with `from_module`.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from fedcome_ray.errors import UserError, did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models import convolutional, dense
from fedcome_ray.models.dense import MLP, Logistic
from fedcome_ray.models.differentiated import Differentiated, from_module
from fedcome_ray.models.model import Batch, Model, Shape, views

__all__ = [
    "MLP",
    "Batch",
    "Differentiated",
    "Logistic",
    "Model",
    "ModelConfig",
    "build",
    "from_module",
    "register",
    "views",
]

Build = Callable[[Any, Shape, int], Model]
"""(hyper-parameters, feature shape, number of classes) -> the model"""


class Entry(NamedTuple):
    """A model as the registry knows it."""

    config: type[Hyperparameters]
    build: Build


REGISTRY: dict[str, Entry] = {
    "mlp": Entry(dense.MLP, dense.build_mlp),
    "logistic": Entry(dense.Logistic, dense.build_logistic),
    "conv2": Entry(convolutional.Conv2, convolutional.build_conv2),
    "conv4": Entry(convolutional.Conv4, convolutional.build_conv4),
    "mcmahan": Entry(convolutional.McMahan, convolutional.build_mcmahan),
}


def build(config: Hyperparameters, feature_shape: Shape, num_classes: int) -> Model:
    """The model that a configuration describes, for examples of this shape."""
    name: str = config.name  # type: ignore[attr-defined]
    return REGISTRY[name].build(config, tuple(feature_shape), num_classes)


def register(config: type[Hyperparameters], build: Build) -> None:
    """Make a user's model known by the default of its field `name`."""
    name = config.model_fields["name"].default
    if name in REGISTRY and REGISTRY[name].config is not config:
        raise UserError(f"the model `{name}` exists already; give yours another name")
    REGISTRY[name] = Entry(config, build)


def _validate(value: object) -> Hyperparameters:
    if isinstance(value, Hyperparameters):
        return value
    if not isinstance(value, dict) or "name" not in value:
        raise PydanticCustomError("model", "a model is given as its `name` and its settings")
    entry = REGISTRY.get(value["name"])
    if entry is None:
        allowed = did_you_mean(str(value["name"]), REGISTRY)
        raise PydanticCustomError(
            "model",
            "unknown model `{name}`; {allowed}",
            {"name": value["name"], "allowed": allowed},
        )
    return entry.config.model_validate(value)


ModelConfig = Annotated[SerializeAsAny[Hyperparameters], PlainValidator(_validate)]
