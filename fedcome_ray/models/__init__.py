"""The models, by name.

A model is a class of hyper-parameters, whose `name` has a default, and a function that builds it
for examples of a given shape. A user's own model joins with `register`, and a `torch.nn.Module`
becomes a model with `from_module`.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray import registry
from fedcome_ray.errors import UserError
from fedcome_ray.hyperparameters import Hyperparameters, name_of
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
    return REGISTRY[name_of(config)].build(config, tuple(feature_shape), num_classes)


def register(config: type[Hyperparameters], build: Build) -> None:
    """Make a user's model known by the default of its field `name`."""
    name = config.model_fields["name"].default
    if name in REGISTRY and REGISTRY[name].config is not config:
        raise UserError(f"the model `{name}` exists already; give yours another name")
    REGISTRY[name] = Entry(config, build)


ModelConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(lambda value: registry.parse("model", REGISTRY, value)),
]
