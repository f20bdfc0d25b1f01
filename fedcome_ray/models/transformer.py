"""A small transformer for sequences of tokens: it reads all and answers at the last.

For next-character prediction, LEAF's task on Shakespeare, what it answers is the character that
follows. Layers are normalised first; attention is written out, so that a block of clients can go
through `vmap`.

Vaswani et al., Attention Is All You Need, NeurIPS 2017. https://arxiv.org/abs/1706.03762
"""

import math
from typing import Literal, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models.model import Shape, unfit

GROWTH = 4  # of the hidden layer between two attentions


class Transformer(Hyperparameters):
    """A small transformer that reads a sequence of token ids, such as characters."""

    name: Literal["transformer"] = "transformer"
    vocabulary: PositiveInt | None = None
    """How many tokens there are; unset, as many as classes: the next token is predicted."""
    width: PositiveInt = 64
    """Length of the vector of a token, a multiple of `heads`."""
    heads: PositiveInt = 4
    """Attentions of a layer."""
    layers: PositiveInt = 2
    """Attentions one after the other."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.heads:
            raise ValueError(
                f"`width` must be a multiple of `heads`, got {self.width}, {self.heads}"
            )
        return self


class Attention(nn.Module):
    """Every token looks at all."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )
        likeness = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        seen = likeness.softmax(-1) @ value
        joined: Tensor = self.join(seen.transpose(1, 2).flatten(2))
        return joined


class Layer(nn.Module):
    """An attention and a hidden layer, each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.think = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, GROWTH * width),
            nn.GELU(),
            nn.Linear(GROWTH * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(x)
        result: Tensor = x + self.think(x)
        return result


class Reader(nn.Module):
    """Tokens and their places become vectors; what the last has become is the answer."""

    def __init__(self, config: Transformer, length: int, num_classes: int) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary or num_classes, config.width)
        self.place = nn.Parameter(torch.randn(length, config.width))
        layers = [Layer(config.width, config.heads) for _ in range(config.layers)]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(config.width))
        self.answer = nn.Linear(config.width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layers(self.token(x) + self.place)
        answer: Tensor = self.answer(hidden[:, -1])
        return answer


def build(config: Transformer, feature_shape: Shape, num_classes: int) -> nn.Module:
    if len(feature_shape) != 1:
        raise unfit(config.name, "sequences of token ids", feature_shape)
    return Reader(config, feature_shape[0], num_classes)
