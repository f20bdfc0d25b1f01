"""A local step in buffers that stay where they are, which a GPU can replay as a whole.

A step of a small model is some dozens of kernels that take a few microseconds each, about as long
as Python needs to start one. A CUDA graph starts all of them at once. It repeats what was
captured, on the same memory and with the same numbers, so everything that changes is in a buffer:
examples are fetched inside, by rows; the learning rate is a column, 0 for clients that are through
with their steps; the step's number, from which dropout is drawn, counts itself. Blocks are filled
up to few sizes, so that one capture serves many.

Not the bits of `Trainer`'s own loop, which fuses the update into a product, but the same numbers.
What it gains has to be measured on a GPU; see docs/gpu.md.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcome_ray.clients.batches import ClientBlock, ClientExamples, Plan, draw_masks, rounded_up
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.methods.method import AnyMethod
from fedcome_ray.models.model import Batch, Model, views
from fedcome_ray.numerics.geometry import clip
from fedcome_ray.numerics.randomness import fold


class Buffers(NamedTuple):
    """What a step reads and writes."""

    params: Tensor  # [clients, dim]
    grad: Tensor
    velocity: Tensor
    rows: Tensor  # [clients, width]
    weight: Tensor
    lr: Tensor  # [clients, 1]: 0 for clients that take no step
    keys: Tensor  # [clients]: of dropout
    number: Tensor  # [1]: of the step


class StaticStep:
    """The step of blocks of so many clients, with batches of one width; captured on CUDA."""

    def __init__(
        self,
        model: Model,
        method: AnyMethod,
        local: LocalConfig,
        examples: ClientExamples,
        shape: tuple[int, int],
        received: Any,
    ) -> None:
        self._model, self._method, self._local = model, method, local
        self._examples = examples
        num, width = shape
        params, ids = received.params, examples.order
        self._buffers = Buffers(
            params=params.new_zeros(num, model.dim),
            grad=params.new_zeros(num, model.dim),
            velocity=params.new_zeros(num, model.dim if local.momentum else 0),
            rows=ids.new_zeros(num, width),
            weight=params.new_zeros(num, width),
            lr=params.new_zeros(num, 1),
            keys=ids.new_zeros(num),
            number=ids.new_zeros(1),
        )
        fresh = method.init_client(params)
        self._received = type(received)(*(field.clone() for field in received))
        self._state = type(fresh)(*(field.new_zeros(num, model.dim) for field in fresh))
        self._replay = self._captured() if params.device.type == "cuda" else self._step

    def descend(
        self,
        update: Tensor,
        block: ClientBlock,
        plan: Plan,
        start: Tensor,
        received: Any,
        state: Any,
        keys: Tensor,
        lr: float,
    ) -> None:
        """The updates of a block, which may be smaller than the buffers."""
        num, buffers = len(block.clients), self._buffers
        for own, given in zip(self._received, received, strict=True):
            own.copy_(given)
        for own, given in zip(self._state, state, strict=True):
            own[:num].copy_(given)
        buffers.params[:num].copy_(start)
        buffers.keys[:num].copy_(keys)
        for buffer in (buffers.velocity, buffers.lr, buffers.number):
            buffer.zero_()
        steps = torch.arange(len(plan.rows), device=keys.device).unsqueeze(-1)
        rates = (steps < block.num_steps).to(buffers.lr.dtype).mul_(lr).unsqueeze(-1)
        for rows, weight, rate in zip(plan.rows, plan.weight, rates, strict=True):
            buffers.rows[:num].copy_(rows)
            buffers.weight[:num].copy_(weight)
            buffers.lr[:num].copy_(rate)
            self._replay()
        torch.sub(buffers.params[:num], start, out=update)

    def _step(self) -> None:
        params, grad, velocity, rows, weight, lr, keys, number = self._buffers
        local = self._local
        x, y = (part.unflatten(0, rows.shape) for part in self._examples.at(rows.flatten()))
        dropout = self._model.dropout
        masks = draw_masks(dropout, fold(keys, number), rows.shape[1]) if dropout else ()
        batch = Batch(x, y, weight, masks)
        tensors, grads = views(params, self._model.shapes), views(grad, self._model.shapes)
        self._model.add_gradient(grads, tensors, batch, keep=0.0, scale=1.0)
        direction = self._method.correct(grad, params, self._received, self._state)
        if local.clip_norm is not None:
            direction = clip(direction, local.clip_norm)
        if local.momentum:
            velocity.mul_(local.momentum).add_(direction).add_(params, alpha=local.weight_decay)
            params.sub_(velocity * lr)
        else:
            params.mul_(1 - lr * local.weight_decay).sub_(direction * lr)
        number.add_(1)

    def _captured(self) -> Callable[[], None]:
        """The step as a graph, after some steps with learning rate 0 that settle the libraries."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        replay: Callable[[], None] = graph.replay
        return replay


class StaticSteps:
    """Captured steps by the shape of blocks, for one trial on one device."""

    def __init__(
        self, model: Model, method: AnyMethod, local: LocalConfig, examples: ClientExamples
    ) -> None:
        self._arguments = (model, method, local, examples)
        self._steps: dict[tuple[int, int], StaticStep] = {}

    def of(self, num_clients: int, width: int, received: Any) -> StaticStep:
        shape = rounded_up(num_clients), width
        if shape not in self._steps:
            self._steps[shape] = StaticStep(*self._arguments, shape, received)
        return self._steps[shape]
