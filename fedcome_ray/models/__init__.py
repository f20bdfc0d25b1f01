"""The models, by name: they compute on params and batches, and know no methods or clients.

A model is a class of hyper-parameters, whose `name` has a default, and a function that builds it
for examples of a given shape. A user's own model joins with `register`, and a `torch.nn.Module`
becomes a model with `from_module`.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models import convolutional, dense
from fedcome_ray.models.dense import MLP, Logistic
from fedcome_ray.models.differentiated import Differentiated, from_module
from fedcome_ray.models.model import Batch, Model, Shape, views
from fedcome_ray.registry import Entry, Registry

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

ModelEntry = Entry[Model]

REGISTRY: Registry[ModelEntry] = Registry(
    "model",
    [
        ModelEntry(dense.MLP, dense.build_mlp, "MLP"),
        ModelEntry(dense.Logistic, dense.build_logistic, "logistic regression"),
        ModelEntry(convolutional.Conv2, convolutional.build_conv2, "two convolutions"),
        ModelEntry(convolutional.Conv4, convolutional.build_conv4, "four convolutions"),
        ModelEntry(convolutional.McMahan, convolutional.build_mcmahan, "CNN of FedAvg"),
    ],
)


def build(config: Hyperparameters, feature_shape: Shape, num_classes: int) -> Model:
    """The model that a configuration describes, for examples of this shape."""
    return REGISTRY.of(config).build(config, tuple(feature_shape), num_classes)


def register(
    config: type[Hyperparameters], build: Callable[[Any, Shape, int], Model], label: str = ""
) -> None:
    """Make a user's model known by the default of its field `name`.

    `build` takes the settings, the shape of an example and the number of classes.
    """
    REGISTRY.add(ModelEntry(config, build, label))


ModelConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(REGISTRY.parse),
]
