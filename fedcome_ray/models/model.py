"""The interface of a model: what training and evaluation ask of it.

Params are flat vectors. A row of a block's params `[clients, dim]` holds the tensors of the
equivalent `torch.nn.Module` in the order of its `parameters()`, each row-major, so that it can be
filled from, and read back into, such a module with `parameters_to_vector` and
`vector_to_parameters`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedcome_ray.errors import ConfigError
from fedcome_ray.numerics.randomness import Stream, generator

Shape = tuple[int, ...]


class Batch(NamedTuple):
    """The examples of one local step of a block of clients, padded to a common length."""

    x: Tensor  # [clients, width, ...features]
    y: Tensor  # [clients, width]
    weight: Tensor  # [clients, width]: 1 / (real examples of the client), 0 for padding
    masks: Sequence[Tensor] = ()  # [clients, width, ...shape] for each dropout layer


class Dropout(NamedTuple):
    """The dropout of a model: what masks it needs in training."""

    rates: tuple[float, ...]  # of each layer
    shapes: tuple[Shape, ...]  # of each layer's mask, for one example


class Model(Protocol):
    """A classifier over flat params, for one client or a block of clients."""

    shapes: Sequence[Shape]
    dim: int
    dropout: Dropout | None
    can_autocast: bool
    """Whether its products may be lowered to bfloat16 one by one, as `torch.autocast` does it."""

    @property
    def activations(self) -> int:
        """Floats that an example in training keeps for the backward pass."""

    def init(self, seed: int) -> Tensor:
        """Fresh params, `[dim]`."""

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        """Class scores of examples `[n, ...]` under one vector of params: `[n, classes]`."""

    def add_gradient(
        self,
        target: Sequence[Tensor],
        params: Sequence[Tensor],
        batch: Batch,
        *,
        keep: float,
        scale: float,
    ) -> None:
        """`target = keep * target + scale * gradient` of each client's mean cross-entropy.

        Both are stacked tensors, `[clients, *shape]` for each shape. With the params as their own
        target this is a whole SGD step, with no gradient written to memory in between.
        """

    def is_stacked(self, device: torch.device) -> bool:
        """Whether clients are fastest in common operations there; if not, one at a time."""


def unfit(name: str, needs: str, feature_shape: Shape, advice: str = "") -> ConfigError:
    """Of a model that cannot take the examples there are."""
    shown = "x".join(map(str, feature_shape))
    return ConfigError(
        f"model.name: `{name}` needs {needs}; the examples of this dataset are {shown}{advice}"
    )


def views(params: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """The tensors of flat params `[..., dim]`, `[..., *shape]` each, in the same memory."""
    parts = params.split([math.prod(shape) for shape in shapes], dim=-1)
    return [part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True)]


def default_init(shapes: Sequence[Shape], seed: int) -> Tensor:
    """PyTorch's default for layers of a weight and a bias: uniform in ±1/sqrt(fan_in)."""
    rng = generator(seed, Stream.INIT)
    parts = []
    for weight, bias in zip(shapes[::2], shapes[1::2], strict=True):
        bound = 1 / math.sqrt(math.prod(weight[1:]))
        parts.append(rng.uniform(-bound, bound, math.prod(weight) + math.prod(bias)))
    return torch.cat([torch.from_numpy(part) for part in parts]).float()
