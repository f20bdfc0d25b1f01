"""How clients train: the settings of local training, and the steps that follow from them."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from fedcome_ray.datasets.population import Indices
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.numerics.device import Precision

BatchSize = PositiveInt | Literal["full"] | None  # as it may be written


def _full_means_none(value: object) -> object:
    return None if value == "full" else value


class LocalConfig(Hyperparameters):
    """Local training, the same for all methods."""

    lr: Annotated[float, Field(gt=0, le=1e30)] = 0.05  # more would not fit into float32
    """Learning rate of the first round."""
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.998
    """Factor of the learning rate per round; the first round is undecayed."""
    epochs: PositiveInt | None = 1
    """Passes over a client's examples in a round; `null` with `steps`."""
    steps: PositiveInt | None = None
    """Steps of every client in a round, instead of `epochs`: as many passes as they need."""
    batch_size: Annotated[PositiveInt | None, BeforeValidator(_full_means_none, BatchSize)] = 50
    """Examples of a step; `null` or `full`: all that the client has."""
    weight_decay: NonNegativeFloat = 1e-3
    """Each step shrinks the params by this share of the learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of the steps of a round, as `torch.optim.SGD` has it, weight decay included."""
    clip_norm: PositiveFloat | None = None
    """The longest that a gradient may be; unset, as long as it is."""
    precision: Precision = "float32"
    """Of matrix products on a GPU."""

    @model_validator(mode="before")
    @classmethod
    def _steps_alone_will_do(cls, settings: Any) -> Any:
        """Whoever writes down `steps` need not take the default of `epochs` back."""
        if isinstance(settings, dict) and settings.get("steps") is not None:
            return {"epochs": None, **settings}
        return settings

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                f"give one of `epochs` and `steps`, and `null` for the other "
                f"(got {self.epochs} and {self.steps})"
            )
        return self

    @model_validator(mode="after")
    def _check_decay(self) -> Self:
        if self.lr * self.weight_decay > 1e30:
            raise ValueError(
                f"`lr` times `weight_decay` must fit into float32, so be at most 1e30, got "
                f"`{self.lr}` and `{self.weight_decay}`"
            )
        return self

    def for_epochs(self, epochs: int) -> Self:
        """The same training for so many epochs."""
        return self.model_copy(update={"epochs": epochs, "steps": None})

    def for_steps(self, steps: int) -> Self:
        """The same training for so many steps."""
        return self.model_copy(update={"epochs": None, "steps": steps})

    def lr_at(self, round_index: int) -> float:
        return self.lr * self.lr_decay**round_index

    def batches_per_epoch(self, sizes: Indices) -> Indices:
        """Of clients with so many examples."""
        return -(-sizes // (self.batch_size or sizes))

    def num_steps(self, sizes: Indices) -> Indices:
        """The local steps of clients with so many examples."""
        if self.steps is not None:
            return np.full_like(sizes, self.steps)
        assert self.epochs is not None
        return self.epochs * self.batches_per_epoch(sizes)

    def num_epochs(self, sizes: Indices) -> Indices:
        """The passes over their examples that they begin."""
        return -(-self.num_steps(sizes) // self.batches_per_epoch(sizes))

    def num_seen(self, sizes: Indices) -> NDArray[np.float64]:
        """The examples that they see in a round, on average, those seen twice counted twice."""
        seen: NDArray[np.float64] = self.num_steps(sizes) / self.batches_per_epoch(sizes) * sizes
        return seen

    @property
    def is_plain(self) -> bool:
        """Whether a step follows the gradient as it is."""
        return self.clip_norm is None and self.momentum == 0
