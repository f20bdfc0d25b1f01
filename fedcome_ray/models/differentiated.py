"""Models that are given as a forward function and differentiated by autograd."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from fedcome_ray.errors import ConfigError
from fedcome_ray.models.model import Batch, Dropout, Shape, views

Forward = Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], Tensor]
"""(tensors of the params, examples, dropout masks or nothing in evaluation) -> logits"""


class Differentiated:
    """A model from its forward function.

    On a CPU clients are trained one at a time: the library's convolutions run near the machine's
    peak on the batch of one client, and grouping clients only makes them slower. On a GPU, where
    small kernels leave it idle, a block goes through `vmap`; one with a single client left does so
    too, because other routines would compute it on its own.
    """

    can_autocast = True

    def __init__(
        self,
        forward: Forward,
        shapes: Sequence[Shape],
        feature_shape: Shape,
        init: Callable[[int], Tensor],
        dropout: Dropout | None = None,
    ) -> None:
        self.forward, self.shapes, self.init, self.dropout = forward, shapes, init, dropout
        self.dim = sum(math.prod(shape) for shape in shapes)
        self.feature_shape = feature_shape

    @cached_property
    def activations(self) -> int:
        # What a second example adds: weights, too, are saved for the backward pass, but once.
        return self._num_saved(2) - self._num_saved(1)

    def logits(self, params: Tensor, x: Tensor) -> Tensor:
        return self.forward(views(params, self.shapes), x, ())

    def add_gradient(
        self,
        target: Sequence[Tensor],
        params: Sequence[Tensor],
        batch: Batch,
        *,
        keep: float,
        scale: float,
    ) -> None:
        is_alone = len(batch.y) == 1 and not self.is_stacked(batch.y.device)
        gradient = self._of_one_client if is_alone else self._of_block
        for part, addend in zip(target, gradient(params, batch), strict=True):
            part.mul_(keep).add_(addend, alpha=scale)

    def is_stacked(self, device: torch.device) -> bool:
        return device.type != "cpu"

    def _of_one_client(self, params: Sequence[Tensor], batch: Batch) -> Sequence[Tensor]:
        leaves = [part[0].detach().requires_grad_() for part in params]
        one = Batch(batch.x[0], batch.y[0], batch.weight[0], [mask[0] for mask in batch.masks])
        with torch.enable_grad():
            return torch.autograd.grad(self._loss(leaves, one), leaves)

    def _of_block(self, params: Sequence[Tensor], batch: Batch) -> Sequence[Tensor]:
        def gradient(params: Sequence[Tensor], *fields: Any) -> Sequence[Tensor]:
            return grad(self._loss)(params, Batch(*fields))  # type: ignore[no-any-return]

        gradients: Sequence[Tensor] = vmap(gradient)(list(params), *batch)
        return gradients

    def _loss(self, params: Sequence[Tensor], batch: Batch) -> Tensor:
        # The loss is as precise as the params, also where autocast has lowered the logits; and its
        # sum is no matrix product, which autocast would lower.
        logits = self.forward(params, batch.x, batch.masks).to(batch.weight.dtype)
        loss = functional.cross_entropy(logits, batch.y, reduction="none")
        return (loss * batch.weight).sum()

    def _num_saved(self, num_examples: int) -> int:
        """Floats that autograd saves of a forward pass; the meta device computes only shapes."""
        sizes = []

        def note(saved: Tensor) -> Tensor:
            sizes.append(saved.numel())
            return saved

        params = [torch.empty(shape, device="meta", requires_grad=True) for shape in self.shapes]
        x = torch.empty(num_examples, *self.feature_shape, device="meta")
        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            self.forward(params, x, ())
        return sum(sizes)


def from_module(make: Callable[[], nn.Module], feature_shape: Shape) -> Differentiated:
    """A model from a user's module: `make` builds it, with its initial parameters."""
    module = make()
    _check_is_function_of_params(module)
    names = [name for name, _ in module.named_parameters()]

    def forward(params: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        logits: Tensor = functional_call(module, dict(zip(names, params, strict=True)), (x,))
        return logits

    def init(seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # noqa: TID251 (modules initialise from the global generator)
            return parameters_to_vector(make().parameters()).detach()

    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    return Differentiated(forward, shapes, feature_shape, init)


def _check_is_function_of_params(module: nn.Module) -> None:
    name = type(module).__name__
    buffers = [buffer for buffer, _ in module.named_buffers()]
    if buffers:
        raise ConfigError(
            f"the model `{name}` has buffers ({', '.join(buffers)}): they are state that clients "
            f"would neither send nor average; use a layer without, GroupNorm instead of BatchNorm"
        )
    for layer, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise ConfigError(
                f"the model `{name}` has dropout ({layer}), which draws from the global generator; "
                f"write it as a forward function that takes `masks`"
            )
