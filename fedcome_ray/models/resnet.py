"""ResNet-18 for small images, with GroupNorm in the place of BatchNorm.

He et al., Deep Residual Learning for Image Recognition, CVPR 2016, as it is used for CIFAR: a first
convolution of 3x3 without pooling. BatchNorm's statistics would be clients' state that nobody
averages: Hsieh et al., The Non-IID Data Quagmire of Decentralized Machine Learning, ICML 2020.
https://arxiv.org/abs/1910.00189
"""

from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from fedcome_ray.errors import ConfigError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models.model import Shape, unfit

STRIDES = (1, 2, 2, 2)  # of the four stages, each with twice the channels of the last
BLOCKS = 2  # of a stage


class ResNet18(Hyperparameters):
    """ResNet-18 for images of 32x32 pixels or so, with GroupNorm."""

    name: Literal["resnet18"] = "resnet18"
    width: PositiveInt = 64
    """Channels of the first stage, a multiple of `groups`."""
    groups: PositiveInt = 2
    """Groups of channels that are normalised together."""


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, channels)
        self.around: nn.Module = nn.Identity()
        if stride > 1 or channels_in != channels:
            shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.around = nn.Sequential(shortcut, nn.GroupNorm(groups, channels))

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(hidden)) + self.around(x))


def build(config: ResNet18, feature_shape: Shape, num_classes: int) -> nn.Module:
    if len(feature_shape) != 3:
        raise unfit(config.name, "images, channels x height x width", feature_shape)
    if config.width % config.groups:
        raise ConfigError(
            f"model.width: must be a multiple of model.groups = {config.groups}, "
            f"got `{config.width}`"
        )
    channels = config.width
    layers: list[nn.Module] = [
        nn.Conv2d(feature_shape[0], channels, 3, padding=1, bias=False),
        nn.GroupNorm(config.groups, channels),
        nn.ReLU(),
    ]
    for stage, stride in enumerate(STRIDES):
        for number in range(BLOCKS):
            wider = config.width * 2**stage
            step = stride if number == 0 else 1
            layers.append(Block(channels, wider, step, config.groups))
            channels = wider
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes)
    )
