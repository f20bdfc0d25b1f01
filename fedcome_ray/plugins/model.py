"""A user's model: tried on examples of the dataset's shape before it is trained."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedcome_ray.models.model import Model, Shape
from fedcome_ray.plugins.watch import Function, rehearsal, shown, watch

PARTS = ("shapes", "dim", "init", "logits", "add_gradient", "is_stacked")


def watched(build: Function) -> Callable[[Any, Shape, int], Model | nn.Module]:
    """The same `build`, which says where it fails; `models.build` tries what it returns."""

    def build_watched(config: Any, feature_shape: Shape, num_classes: int) -> Model | nn.Module:
        with rehearsal():
            model: Model | nn.Module = watch(build, _is_model)(config, feature_shape, num_classes)
        return model

    return build_watched


def _is_model(result: Any, _config: object, feature_shape: Shape, num_classes: int) -> str | None:
    if isinstance(result, nn.Module):
        return None
    if not all(hasattr(result, part) for part in PARTS):
        return f"returned {shown(result)}, expected a `torch.nn.Module` or a `Model`"
    found = list(result.logits(result.init(0), torch.zeros(2, *feature_shape)).shape)
    if found == [2, num_classes]:
        return None
    return f"returned a model with logits of shape {found}, expected {[2, num_classes]}"
