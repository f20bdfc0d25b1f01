"""Models that are given as a forward function and differentiated by autograd."""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from fedcome_ray.models.model import Batch, Dropout, Shape, views

Forward = Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], Tensor]
"""(tensors of the params, examples, dropout masks or nothing in evaluation) -> logits"""


class Differentiated:
    """A model from its forward function, and perhaps another that suits a block under `vmap`.

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
        feature_dtype: torch.dtype = torch.float32,
        forward_in_block: Forward | None = None,
    ) -> None:
        self.forward, self.shapes, self.init, self.dropout = forward, shapes, init, dropout
        self.forward_in_block = forward_in_block or forward
        self.dim = sum(math.prod(shape) for shape in shapes)
        self.feature_shape, self.feature_dtype = feature_shape, feature_dtype

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
            loss = _loss(self.forward, leaves, one)
            return torch.autograd.grad(loss, leaves, materialize_grads=True)

    def _of_block(self, params: Sequence[Tensor], batch: Batch) -> Sequence[Tensor]:
        def gradient(params: Sequence[Tensor], *fields: Any) -> Sequence[Tensor]:
            loss = partial(_loss, self.forward_in_block)
            return grad(loss)(params, Batch(*fields))  # type: ignore[no-any-return]

        gradients: Sequence[Tensor] = vmap(gradient)(list(params), *batch)
        return gradients

    def _num_saved(self, num_examples: int) -> int:
        """Floats that autograd saves of a forward pass; the meta device computes only shapes."""
        sizes = []

        def note(saved: Tensor) -> Tensor:
            sizes.append(saved.numel())
            return saved

        params = [torch.empty(shape, device="meta", requires_grad=True) for shape in self.shapes]
        x = torch.empty(num_examples, *self.feature_shape, dtype=self.feature_dtype, device="meta")
        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            self.forward_in_block(params, x, ())
        return sum(sizes)


def _loss(forward: Forward, params: Sequence[Tensor], batch: Batch) -> Tensor:
    # The loss is as precise as the params, also where autocast has lowered the logits; and its
    # sum is no matrix product, which autocast would lower.
    logits = forward(params, batch.x, batch.masks).to(batch.weight.dtype)
    loss = functional.cross_entropy(logits, batch.y, reduction="none")
    return (loss * batch.weight).sum()
