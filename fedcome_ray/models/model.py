"""The interface of a model: what training and evaluation ask of it.

Params are flat vectors. A row of a block's params `[clients, dim]` holds the tensors of the
equivalent `torch.nn.Module` in the order of its `parameters()`, each row-major, so that it can be
filled from, and read back into, such a module with `parameters_to_vector` and
`vector_to_parameters`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
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


class Inputs(NamedTuple):
    """Inputs as they are kept: those of a CPU are what compiled code takes."""

    x: Tensor  # [examples, ...features]
    scale: tuple[Tensor, Tensor] | None  # factor and shift of bytes

    @property
    def fit_compiled_code(self) -> bool:
        """Whether it takes them, with params in float32: bytes with a scale, or floats."""
        wanted = torch.float32 if self.scale is None else torch.uint8
        return self.x.dtype == wanted and self.x.device.type == "cpu" and self.x.is_contiguous()


class Course(NamedTuple):
    """All local steps of some clients.

    The rows of a client are its examples in the order of its first epoch, then of its second, and
    so on; each epoch is cut into batches, of which the last may be smaller.
    """

    inputs: Inputs
    y: Tensor  # [examples]
    rows: Tensor  # of all clients, one after the other
    starts: NDArray[np.int64]  # [clients]: the place of each client's first row
    sizes: NDArray[np.int64]  # [clients]: its examples
    num_steps: NDArray[np.int64]  # [clients]
    batch_size: int  # the most examples of a step

    def of(self, clients: slice) -> "Course":
        """That of some of the clients."""
        starts, sizes, num_steps = (
            part[clients] for part in (self.starts, self.sizes, self.num_steps)
        )
        return self._replace(starts=starts, sizes=sizes, num_steps=num_steps)


class Rule(NamedTuple):
    """How a step changes params: `keep * params + scale * gradient - lr * offset`."""

    keep: float
    scale: float
    lr: float
    offset: Tensor | None  # for each client, or the same for all of them


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


class Compiled(ABC):
    """A model with code compiled for it, for inputs that fit it."""

    @abstractmethod
    def descend(self, update: Tensor, start: Tensor, course: Course, rule: Rule) -> None:
        """All local steps: train clients from `start`, write how far they come to `update`.

        Both are `[clients, dim]`.
        """

    @abstractmethod
    def score(
        self, params: Tensor, inputs: Inputs, y: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss and correctness of these examples; the bits do not depend on how many they are."""


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
