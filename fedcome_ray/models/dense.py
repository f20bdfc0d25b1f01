"""Fully connected models, with gradients derived by hand.

All clients of a block go through one batched matrix product a layer, and the SGD update is part
of the product that computes the weight's gradient: about twice as fast as autograd under `vmap`.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models.model import Batch, Dropout, Shape, default_init, views


class MLP(Hyperparameters):
    """Fully connected layers with ReLU between them."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[PositiveInt, ...] = Field(default=(64,), min_length=1)
    """Units of each hidden layer."""


class Logistic(Hyperparameters):
    """Multinomial logistic regression."""

    name: Literal["logistic"] = "logistic"


def build_mlp(config: MLP, feature_shape: Shape, num_classes: int) -> "Dense":
    return Dense((math.prod(feature_shape), *config.hidden, num_classes))


def build_logistic(config: Logistic, feature_shape: Shape, num_classes: int) -> "Dense":
    return Dense((math.prod(feature_shape), num_classes))


class Dense:
    """Fully connected layers of these widths."""

    dropout: Dropout | None = None
    can_autocast = False  # it lowers some of the products, and not those that add to params

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.shapes: Sequence[Shape] = [
            shape for fan_in, out in pairwise(widths) for shape in ((out, fan_in), (out,))
        ]
        self.dim = sum(math.prod(shape) for shape in self.shapes)
        self.activations = sum(widths)

    def init(self, seed: int) -> Tensor:
        return default_init(self.shapes, seed)

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        tensors = views(params, self.shapes)
        hidden = x.flatten(1).to(params.dtype)  # also of integers
        for weight, bias in _layers(tensors[:-2]):
            hidden = functional.linear(hidden, weight, bias).relu_()
        return functional.linear(hidden, *tensors[-2:])

    def add_gradient(
        self,
        target: Sequence[Tensor],
        params: Sequence[Tensor],
        batch: Batch,
        *,
        keep: float,
        scale: float,
    ) -> None:
        layers = _layers(params)
        inputs = [batch.x.flatten(2).to(batch.weight.dtype)]  # of each layer
        for weight, bias in layers[:-1]:
            inputs.append(_affine(bias.unsqueeze(1), inputs[-1], weight.mT).relu_())
        weight, bias = layers[-1]
        # Classes before examples: softmax is an order of magnitude slower over a short last axis.
        scores = _affine(bias.unsqueeze(2), weight, inputs[-1].mT)
        share = batch.weight.unsqueeze(1)
        error = scores.softmax(1).mul_(share).scatter_add_(1, batch.y.unsqueeze(1), -share).mT

        for depth, (weight_target, bias_target) in reversed(list(enumerate(_layers(target)))):
            error_above = error
            if depth:  # before the weight changes, which may be its own target
                error = _product(error, layers[depth][0])
                error = torch.ops.aten.threshold_backward(error, inputs[depth], 0)
            _add_product(weight_target, error_above.mT, inputs[depth], keep, scale)
            # A sum and not a product with ones, whose bits differ for a block of one client.
            bias_target.mul_(keep).add_(error_above.sum(1), alpha=scale)

    def is_stacked(self, device: torch.device) -> bool:
        return True


def _affine(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`bias + left @ right` for each client."""
    if _is_thin(left, right):
        return _product(left, right).add_(bias)
    return torch.baddbmm(bias, left, right)


def _add_product(target: Tensor, left: Tensor, right: Tensor, keep: float, scale: float) -> None:
    """`target = keep * target + scale * left @ right` for each client."""
    if _is_thin(left, right):
        target.mul_(keep).add_(_product(left, right), alpha=scale)
    else:
        target.baddbmm_(left, right, beta=keep, alpha=scale)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` for each client."""
    if _is_thin(left, right):
        return (left.unsqueeze(3) * right.unsqueeze(1)).sum(2)
    return torch.bmm(left, right)


def _is_thin(left: Tensor, right: Tensor) -> bool:
    """Whether a matrix is a vector: of a single one the library takes the product by another
    routine than of several, and a client's bits would depend on its company.
    """
    return 1 in (*left.shape[1:], right.shape[2])


def _layers(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer."""
    return list(zip(tensors[::2], tensors[1::2], strict=True))
