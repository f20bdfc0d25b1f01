"""The models, by name: they compute on params and batches, and know no methods or clients.

A model is a class of hyper-parameters, whose `name` has a default, and a function that builds it
for examples of a given shape: a `Model`, or a `torch.nn.Module`, which is made into one.
`fedcome_ray.plugins` adds those of users.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, cast

import numpy as np
import torch
from numpy.typing import DTypeLike
from pydantic import PlainValidator, SerializeAsAny
from torch import nn

from fedcome_ray.hyperparameters import Hyperparameters, name_of
from fedcome_ray.models import convolutional, dense, resnet, transformer
from fedcome_ray.models.dense import MLP, Logistic
from fedcome_ray.models.differentiated import Differentiated
from fedcome_ray.models.from_module import from_module
from fedcome_ray.models.model import Batch, Model, Shape, views
from fedcome_ray.registry import Entry, Registry

__all__ = [
    "MLP",
    "Batch",
    "Differentiated",
    "Logistic",
    "Model",
    "ModelConfig",
    "ModelEntry",
    "build",
    "from_module",
    "views",
]


@dataclass(frozen=True)
class ModelEntry(Entry[Model | nn.Module]):
    """Its `build` takes the settings, the shape of an example and the number of classes."""


REGISTRY: Registry[ModelEntry] = Registry(
    "model",
    [
        ModelEntry(dense.MLP, dense.build_mlp, "MLP", compiled=dense.__name__),
        ModelEntry(
            dense.Logistic, dense.build_logistic, "logistic regression", compiled=dense.__name__
        ),
        ModelEntry(convolutional.Conv2, convolutional.build_conv2, "two convolutions"),
        ModelEntry(convolutional.Conv4, convolutional.build_conv4, "four convolutions"),
        ModelEntry(convolutional.McMahan, convolutional.build_mcmahan, "CNN of FedAvg"),
        ModelEntry(resnet.ResNet18, resnet.build, "ResNet-18"),
        ModelEntry(transformer.Transformer, transformer.build, "transformer"),
    ],
)


def build(
    config: Hyperparameters,
    feature_shape: Shape,
    num_classes: int,
    feature_dtype: DTypeLike = np.float32,
) -> Model:
    """The model that a configuration describes, for examples of this shape and type."""
    make, dtype = REGISTRY.of(config).build, np.dtype(feature_dtype)
    return _built(make, config, tuple(feature_shape), num_classes, dtype)


@lru_cache(maxsize=8)  # modules are tried, which need not happen for every trial of a grid
def _built(
    make: Callable[..., Model | nn.Module],
    config: Hyperparameters,
    feature_shape: Shape,
    num_classes: int,
    feature_dtype: "np.dtype[Any]",
) -> Model:
    arguments = config, feature_shape, num_classes
    with torch.random.fork_rng(devices=[]):  # modules draw from the global generator
        model = make(*arguments)
    if isinstance(model, nn.Module):
        return from_module(
            lambda: cast(nn.Module, make(*arguments)),
            feature_shape,
            num_classes,
            feature_dtype,
            name_of(config),
        )
    return model


ModelConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(REGISTRY.parse),
]
