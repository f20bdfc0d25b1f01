"""Fully connected models, with gradients derived by hand.

All clients of a block go through one batched matrix product a layer, and the SGD update is part
of the product that computes the weight's gradient: about twice as fast as autograd under `vmap`.
On a CPU clients train in compiled code, one after the other: see `dense_descent.py`.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models.model import (
    Batch,
    Compiled,
    Course,
    Dropout,
    Inputs,
    Rule,
    Shape,
    default_init,
    views,
)
from fedcome_ray.numerics.machine_code import BYTES, FLOAT, FLOATS, INTEGER, INTEGERS, Function

_MODULE = "fedcome_ray.models.dense_descent"
_USES = ("fedcome_ray.numerics.tiles",)
_DESCEND = Function(
    _MODULE,
    "descend",
    (
        *(INTEGERS, INTEGER),  # levels
        *(FLOATS, BYTES, INTEGERS, INTEGER),  # memory
        *(FLOATS, FLOATS, INTEGER),  # updates, starts
        *(FLOATS, INTEGER, INTEGER),  # offsets
        *(INTEGER, INTEGERS, INTEGERS),  # clients, their examples and steps
        *(INTEGERS, INTEGERS, INTEGER),  # rows, where those of clients start, batches
        *(BYTES, FLOATS, INTEGER),  # inputs
        *(FLOATS, FLOATS, INTEGERS),  # their scale, labels
        *(FLOAT, FLOAT, FLOAT),  # rule
    ),
    _USES,
)
_SCORE = Function(
    _MODULE,
    "score",
    (
        *(INTEGERS, INTEGER, FLOATS, BYTES, INTEGERS),  # levels, memory
        *(FLOATS, INTEGERS, INTEGER),  # params, rows
        *(BYTES, FLOATS, INTEGER),  # inputs
        *(FLOATS, FLOATS, INTEGERS),  # their scale, labels
        *(FLOATS, BYTES),  # losses, hits
    ),
    _USES,
)
LANES = 16  # units of a panel, as in tiles.py, which only the compiler imports
NO_OFFSET = -1
TOGETHER = 48  # examples that are scored at once


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


class Dense(Compiled):
    """Fully connected layers of these widths."""

    dropout: Dropout | None = None
    can_autocast = False  # it lowers some of the products, and not those that add to params

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.shapes: Sequence[Shape] = [
            shape for fan_in, out in pairwise(widths) for shape in ((out, fan_in), (out,))
        ]
        self.widths = widths
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

    def descend(self, update: Tensor, start: Tensor, course: Course, rule: Rule) -> None:
        assert update.dtype == start.dtype == torch.float32
        most_examples = min(course.batch_size, int(course.sizes.max(initial=1)))
        layout = layout_of(self.widths, most_examples, is_training=True)
        memory, gaps = torch.zeros(layout.num_floats), _Gaps(self.widths[0])
        offset, offset_row = start, NO_OFFSET
        if rule.offset is not None:
            offset = rule.offset.to(start.dtype).expand_as(update)
            if offset.stride(1) != 1:  # one number for all params: give each its own
                offset = offset.contiguous()
            offset_row = offset.stride(0)
        x, (factor, shift) = course.inputs.x, _scale(course.inputs)
        _DESCEND(
            *(layout.levels.ctypes.data, len(self.widths) - 1),
            *(memory.data_ptr(), *gaps.addresses, layout.num_weights),
            *(update.data_ptr(), start.data_ptr(), start.stride(0)),
            *(offset.data_ptr(), offset_row, self.dim),
            *(len(update), course.sizes.ctypes.data, course.num_steps.ctypes.data),
            *(course.rows.data_ptr(), course.starts.ctypes.data, course.batch_size),
            *(x.data_ptr(), x.data_ptr(), course.inputs.scale is not None),
            *(factor.data_ptr(), shift.data_ptr(), course.y.data_ptr()),
            *(rule.keep, rule.scale, -rule.lr),
        )

    def score(
        self, params: Tensor, inputs: Inputs, y: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert params.dtype == torch.float32
        layout = layout_of(self.widths, TOGETHER, is_training=False)
        memory, gaps = torch.zeros(layout.num_floats), _Gaps(self.widths[0])
        losses, hits = torch.empty(len(rows)), torch.empty(len(rows), dtype=torch.bool)
        params, rows = params.contiguous(), rows.contiguous()
        x, (factor, shift) = inputs.x, _scale(inputs)
        _SCORE(
            *(layout.levels.ctypes.data, len(self.widths) - 1),
            *(memory.data_ptr(), *gaps.addresses),
            *(params.data_ptr(), rows.data_ptr(), len(rows)),
            *(x.data_ptr(), x.data_ptr(), inputs.scale is not None),
            *(factor.data_ptr(), shift.data_ptr(), y.data_ptr()),
            *(losses.data_ptr(), hits.data_ptr()),
        )
        return losses, hits


def _scale(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Factor and shift of each feature; anything where there are none."""
    if inputs.scale is None:
        return inputs.x, inputs.x
    factor, shift = (part.expand(inputs.x.shape[1:]).contiguous() for part in inputs.scale)
    return factor, shift


class _Gaps:
    """Memory to find inputs in that are the same for all examples, see `dense_descent.py`."""

    def __init__(self, num_inputs: int) -> None:
        self._differs = np.empty(num_inputs, np.uint8)
        self._bounds = np.empty(num_inputs + 4, np.int64)  # products read one pair more
        self.addresses = self._differs.ctypes.data, self._bounds.ctypes.data


class Layout(NamedTuple):
    """Where a client in training has its numbers: a table of places, see `dense_descent.py`."""

    levels: NDArray[np.int64]  # [levels, columns]
    num_weights: int
    num_floats: int


@lru_cache(maxsize=64)
def layout_of(widths: tuple[int, ...], most_examples: int, is_training: bool) -> Layout:
    """For batches of up to so many examples."""
    strides = [_spread(width + 1) for width in widths]
    panels = [0, *(_in_panels(out) * (fan_in + 1) for fan_in, out in pairwise(widths))]
    transposed = [0, 0, *(_in_panels(fan_in) * out for fan_in, out in pairwise(widths[1:]))]
    rows = [stride * most_examples for stride in strides]
    if is_training:
        # The weights as they change, as they began, and what is added to them in every step.
        sizes = [*panels, *panels, *panels, *rows, *rows, *transposed, *strides]
        columns = [3, 4, 0, 5, 6]
    else:
        sizes, columns = [*panels, *rows], [1, 1, 0, 1, 1]
    places = np.reshape(np.cumsum([0, *sizes])[:-1], (-1, len(widths)))
    levels = np.stack((widths, strides, *places[columns]), axis=1)
    return Layout(levels, sum(panels), sum(sizes))


def _in_panels(units: int) -> int:
    """Units, the last panel filled up."""
    return -(-units // LANES) * LANES


def _spread(numbers: int) -> int:
    """The stride of rows of so many numbers: an odd number of lines of the cache, so that the same
    column of all rows does not fall on few of its places.
    """
    lines = -(-numbers // LANES)
    return (lines | 1) * LANES


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
