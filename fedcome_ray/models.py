"""Models over flat parameter vectors, for one client or a block of clients.

The params of a block are one buffer `[clients, dim]`. A model knows the layout of a row: for each
layer the weight, row-major as PyTorch stores it (`[out, in]`), then the bias; layers in forward
order. So a row can be filled from, and read back into, the matching `torch.nn.Module` with
`parameters_to_vector` and `vector_to_parameters`.
"""

import math
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Protocol

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.randomness import Stream, generator


class Batch(NamedTuple):
    """The examples of one local step of a block of clients, padded to a common length."""

    x: Tensor  # [clients, batch, ...features]
    y: Tensor  # [clients, batch]
    weight: Tensor  # [clients, batch]: 1 / (real examples of the client), 0 for padding


class Model(Protocol):
    """What training and evaluation ask of a model."""

    dim: int

    def init(self, seed: int) -> Tensor:
        """Fresh params, `[dim]`."""

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Class scores of examples `[n, ...]` under one vector of params: `[n, classes]`."""

    def gradient(self, params: Tensor, batch: Batch) -> Tensor:
        """Gradient of each client's mean cross-entropy, `[clients, dim]`."""


class MLP(Hyperparameters):
    """Fully connected layers with ReLU between them."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[PositiveInt, ...] = Field(default=(64,), min_length=1)


class Logistic(Hyperparameters):
    """Multinomial logistic regression."""

    name: Literal["logistic"] = "logistic"


ModelConfig = Annotated[MLP | Logistic, Field(discriminator="name")]


def build(config: MLP | Logistic, feature_shape: tuple[int, ...], num_classes: int) -> Model:
    """The model that a configuration describes, for examples of this shape."""
    hidden = config.hidden if isinstance(config, MLP) else ()
    return Dense((math.prod(feature_shape), *hidden, num_classes))


class Dense:
    """Fully connected layers; all clients of a block in one batched matrix product a layer."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.shapes = [(out, fan_in) for fan_in, out in pairwise(widths)]
        self.dim = sum(out * fan_in + out for out, fan_in in self.shapes)

    def init(self, seed: int) -> Tensor:
        rng = generator(seed, Stream.INIT)
        parts = []
        for out, fan_in in self.shapes:
            # PyTorch's default for nn.Linear: weight and bias uniform in ±1/sqrt(fan_in).
            bound = 1 / math.sqrt(fan_in)
            parts.append(torch.from_numpy(rng.uniform(-bound, bound, out * fan_in + out)).float())
        return torch.cat(parts)

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        hidden = x.flatten(1)
        layers = self._layers(params)
        for weight, bias in layers[:-1]:
            hidden = functional.relu(functional.linear(hidden, weight, bias))
        return functional.linear(hidden, *layers[-1])

    def gradient(self, params: Tensor, batch: Batch) -> Tensor:
        layers = self._layers(params)
        inputs = [batch.x.flatten(2)]  # of each layer
        for weight, bias in layers[:-1]:
            scores = torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.mT)
            inputs.append(scores.relu_())
        weight, bias = layers[-1]
        error = torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.mT).softmax(-1)
        error.scatter_add_(-1, batch.y.unsqueeze(-1), -torch.ones_like(error[..., :1]))
        error *= batch.weight.unsqueeze(-1)

        grad = torch.empty_like(params)
        grads = self._layers(grad)
        for depth in reversed(range(len(layers))):
            weight_grad, bias_grad = grads[depth]
            torch.bmm(error.mT, inputs[depth], out=weight_grad)
            torch.sum(error, 1, out=bias_grad)
            if depth:
                error = torch.bmm(error, layers[depth][0]) * (inputs[depth] > 0)
        return grad

    def _layers(self, params: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of `[..., dim]` as the weight and the bias of each layer."""
        views, start = [], 0
        for out, fan_in in self.shapes:
            middle, end = start + out * fan_in, start + out * fan_in + out
            weight = params[..., start:middle].unflatten(-1, (out, fan_in))
            views.append((weight, params[..., middle:end]))
            start = end
        return views
