"""Convolutional networks: convolutions and poolings, then two fully connected layers.

Two choices make them fast on a CPU without changing what they compute: images are kept channels
last, and ReLU comes after max-pooling, where a quarter of the values is left.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models.differentiated import Differentiated
from fedcome_ray.models.model import Dropout, Shape, default_init, unfit
from fedcome_ray.numerics.environment import convolution_form

DropoutRate = Annotated[float, Field(ge=0, lt=1)]


class Conv2(Hyperparameters):
    """The FEMNIST network of the FedCOME experiments: two convolutions."""

    name: Literal["conv2"] = "conv2"
    hidden: PositiveInt = 512
    """Units of the dense layer before the last."""
    dropout: DropoutRate = 0.5
    """Share of the values that are dropped while training."""


class Conv4(Hyperparameters):
    """The CIFAR network of the FedCOME experiments: four convolutions."""

    name: Literal["conv4"] = "conv4"
    hidden: PositiveInt = 512
    """Units of the dense layer before the last."""
    dropout: DropoutRate = 0.3
    """Share of the values that are dropped while training."""


class McMahan(Hyperparameters):
    """The network of the FedAvg paper: two 5x5 convolutions that keep the image's size."""

    name: Literal["mcmahan"] = "mcmahan"
    hidden: PositiveInt = 512
    """Units of the dense layer before the last."""


class Stage(NamedTuple):
    """A convolution and what follows it."""

    channels: int
    kernel: int = 3
    padding: int = 0
    pool: bool = False
    drop: bool = False


CONV2 = (Stage(32, pool=True), Stage(64, pool=True, drop=True))
CONV4 = (Stage(32), Stage(64, pool=True, drop=True), Stage(64), Stage(64, pool=True, drop=True))
MCMAHAN = (Stage(32, kernel=5, padding=2, pool=True), Stage(64, kernel=5, padding=2, pool=True))


Convolve = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""(images, weight, bias, padding) -> images"""


def convolve_by_library(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """On a GPU, for a block of clients, `vmap` makes this a convolution in groups."""
    return functional.conv2d(x, weight, bias, padding=padding)


def convolve_by_products(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Every patch as a column of a matrix: for a block, one batched product.

    Nine times the memory for a 3x3 kernel, but products are fast on every GPU, and convolutions in
    many small groups may not be.
    """
    kernel = weight.shape[-1]
    height, width = (side + 2 * padding - kernel + 1 for side in x.shape[-2:])
    columns = functional.unfold(x, kernel, padding=padding)
    images: Tensor = weight.flatten(1) @ columns + bias.unsqueeze(-1)
    return images.reshape(*images.shape[:-1], height, width)


def convolve_in_block(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Of a client in a block: the form that the user wants, or one by shape.

    By products where the columns take no more memory than the result. These are the layers that
    look at the images themselves, with one to three channels, and such thin groups are what
    libraries are worst at. Never by a stopwatch: other bits would come out every time. What has to
    be measured on a GPU is in docs/gpu.md.
    """
    form = convolution_form()
    is_small = weight[0].numel() <= len(weight)
    by_products = form == "products" or (form == "auto" and is_small)
    if x.device.type != "cpu" and by_products:
        return convolve_by_products(x, weight, bias, padding)
    return convolve_by_library(x, weight, bias, padding)


def build_conv2(
    config: Conv2,
    feature_shape: Shape,
    num_classes: int,
    in_block: Convolve = convolve_in_block,
) -> Differentiated:
    architecture = Architecture(CONV2, config.hidden, drop_hidden=False, in_block=in_block)
    return _build(config.name, architecture, config.dropout, feature_shape, num_classes)


def build_conv4(config: Conv4, feature_shape: Shape, num_classes: int) -> Differentiated:
    architecture = Architecture(CONV4, config.hidden, drop_hidden=True)
    return _build(config.name, architecture, config.dropout, feature_shape, num_classes)


def build_mcmahan(config: McMahan, feature_shape: Shape, num_classes: int) -> Differentiated:
    architecture = Architecture(MCMAHAN, config.hidden, drop_hidden=False)
    return _build(config.name, architecture, 0.0, feature_shape, num_classes)


class Architecture(NamedTuple):
    """A convolutional network, but for the sizes of its input and output."""

    stages: tuple[Stage, ...]
    hidden: int
    drop_hidden: bool
    in_block: Convolve = convolve_in_block

    def forward_in_block(
        self, params: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor]
    ) -> Tensor:
        return self.forward(params, x, masks, self.in_block)

    def forward(
        self,
        params: Sequence[Tensor],
        x: Tensor,
        masks: Sequence[Tensor],
        convolve: Convolve = convolve_by_library,
    ) -> Tensor:
        tensors, drops = iter(params), iter(masks)
        hidden = _channels_last(x.to(params[0].dtype))  # also of integers
        for stage in self.stages:
            hidden = convolve(hidden, next(tensors), next(tensors), stage.padding)
            if stage.pool:
                hidden = functional.max_pool2d(hidden, 2)
            hidden = functional.relu(hidden)
            if stage.drop and masks:
                hidden = hidden * next(drops).permute(0, 3, 1, 2)
        hidden = functional.linear(hidden.flatten(1), next(tensors), next(tensors))
        hidden = functional.relu(hidden)
        if self.drop_hidden and masks:
            hidden = hidden * next(drops)
        return functional.linear(hidden, next(tensors), next(tensors))

    def sizes(self, feature_shape: Shape, num_classes: int) -> tuple[list[Shape], list[Shape]]:
        """Shapes of the params, and of the dropout masks of one example, channels last."""
        channels, height, width = feature_shape
        params: list[Shape] = []
        masks: list[Shape] = []
        for stage in self.stages:
            params += [(stage.channels, channels, stage.kernel, stage.kernel), (stage.channels,)]
            channels, lost = stage.channels, stage.kernel - 1 - 2 * stage.padding
            height, width = height - lost, width - lost
            if stage.pool:
                height, width = height // 2, width // 2
            if stage.drop:
                masks.append((height, width, channels))
        params += [(self.hidden, channels * height * width), (self.hidden,)]
        params += [(num_classes, self.hidden), (num_classes,)]
        if self.drop_hidden:
            masks.append((self.hidden,))
        return params, masks

    @property
    def smallest_side(self) -> int:
        """Pixels that leave one value at the end."""
        side = 1
        for stage in reversed(self.stages):
            side = side * (2 if stage.pool else 1) + stage.kernel - 1 - 2 * stage.padding
        return side


def _build(
    name: str, architecture: Architecture, dropout: float, feature_shape: Shape, num_classes: int
) -> Differentiated:
    if len(feature_shape) != 3 or min(feature_shape[1:]) < architecture.smallest_side:
        least = f"images of at least {architecture.smallest_side} pixels a side"
        needs = f"{least}, given as channels x height x width"
        raise unfit(name, needs, feature_shape, "; `mlp` and `logistic` take any")
    params, masks = architecture.sizes(feature_shape, num_classes)
    return Differentiated(
        architecture.forward,
        params,
        feature_shape,
        lambda seed: default_init(params, seed),
        Dropout((dropout,) * len(masks), tuple(masks)) if dropout else None,
        forward_in_block=architecture.forward_in_block,
    )


def _channels_last(x: Tensor) -> Tensor:
    # A clone and not `.contiguous(memory_format=...)`, which leaves images of one channel as they
    # are: both orders are the same for them, but what follows would then run channels first.
    return x.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format).permute(0, 3, 1, 2)
