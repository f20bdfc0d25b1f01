"""Local training of a block of clients, once for all methods."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from fedcome_ray.clients.batches import ClientExamples, Plan, plan
from fedcome_ray.clients.evaluation import score
from fedcome_ray.datasets.population import Indices
from fedcome_ray.experiments.trial import LocalConfig
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod, Report
from fedcome_ray.models.model import Batch, Model, views
from fedcome_ray.numerics.randomness import Stream, client_keys, dropout_mask, fold

GATHERED_BYTES = 2**20
"""Inputs that are fetched at once: several steps of a small model, never more than the cache."""


@dataclass(frozen=True)
class Trainer:
    """Trains blocks of clients of a trial, on the device of their examples."""

    model: Model
    method: AnyMethod
    local: LocalConfig
    examples: ClientExamples
    seed: int

    @torch.no_grad()
    def train(
        self, clients: Indices, width: int, received: Any, client_state: Any, round_index: int
    ) -> tuple[Any, Report]:
        """The local steps of a block of clients -> (their next states, their report)."""
        lr = self.local.lr_at(round_index)
        steps = self._plan(clients, width, round_index)
        batches = self._batches(clients, steps, round_index)
        start = received.params
        if self._is_plain:
            update = self._descend(start, len(clients), batches, lr)
        else:
            update = self._descend_corrected(received, client_state, len(clients), batches, lr)
        column = start.new_empty(len(clients), 1)
        report = Report(
            update=update,
            loss=self._losses(start, clients) if self.method.uses_loss else column.fill_(torch.nan),
            total_lr=lr * column.new_tensor(steps.num_steps).unsqueeze(-1),
            num_examples=column.new_tensor(self.examples.sizes(clients)).unsqueeze(-1),
        )
        return self.method.carry(received, client_state, report), report

    @property
    def _is_plain(self) -> bool:
        return self.method.correct is parts.uncorrected and self.local.clip_norm is None

    def _descend(
        self, start: Tensor, num_clients: int, batches: Iterator[Batch], lr: float
    ) -> Tensor:
        """Plain SGD: every tensor has memory of its own and is updated where it is."""
        origin = views(start, self.model.shapes)
        tensors = [part.repeat(num_clients, *(1 for _ in part.shape)) for part in origin]
        active = tensors
        keep = 1 - lr * self.local.weight_decay
        for batch in batches:
            if len(batch.y) < len(active[0]):
                active = _first(tensors, len(batch.y))
            self.model.add_gradient(active, active, batch, keep=keep, scale=-lr)
        update = start.new_empty(num_clients, self.model.dim)
        places = views(update, self.model.shapes)
        for part, begin, place in zip(tensors, origin, places, strict=True):
            torch.sub(part, begin, out=place)
        return update

    def _descend_corrected(
        self, received: Any, state: Any, num_clients: int, batches: Iterator[Batch], lr: float
    ) -> Tensor:
        """SGD along the method's corrected gradient, for which gradients are formed in full."""
        params: Tensor = received.params.expand(num_clients, -1).clone()
        grad = torch.zeros_like(params)
        tensors, grads = views(params, self.model.shapes), views(grad, self.model.shapes)
        for batch in batches:
            num = len(batch.y)
            self.model.add_gradient(
                _first(grads, num), _first(tensors, num), batch, keep=0.0, scale=1.0
            )
            active = params[:num]
            step = self.method.correct(
                grad[:num], active, received, type(state)(*_first(state, num))
            )
            if self.local.clip_norm is not None:
                step = clip(step, self.local.clip_norm)
            # Weight decay comes after clipping, as in PyTorch's SGD behind clip_grad_norm_.
            active.mul_(1 - lr * self.local.weight_decay).sub_(step, alpha=lr)
        return params.sub_(received.params)

    def _plan(self, clients: Indices, width: int, round_index: int) -> Plan:
        keys = self._keys(Stream.BATCHES, clients, round_index)
        local = self.local
        return plan(self.examples, clients, width, local.epochs, local.batch_size, keys)

    def _batches(self, clients: Indices, steps: Plan, round_index: int) -> Iterator[Batch]:
        labels = self.examples.y[steps.rows]
        dropout_keys = self._keys(Stream.DROPOUT, clients, round_index)
        is_stacked = self.model.is_stacked(labels.device)
        for step, x in enumerate(self._inputs(steps)):
            num, width = x.shape[:2]
            if not is_stacked:  # a client that is always on its own needs no padding
                width = steps.num_real[step]
            yield Batch(
                x[:, :width],
                labels[step, :num, :width],
                steps.weight[step, :num, :width],
                self._masks(dropout_keys[:num], step, width),
            )

    def _inputs(self, steps: Plan) -> Iterator[Tensor]:
        """Of each step, the inputs of the clients that take it: `[clients, width, ...]`."""
        x = self.examples.x
        first = 0
        for num, run in groupby(steps.num_active):
            last = first + len(list(run))
            rows = steps.rows[first:last, :num]
            bytes_per_step = rows[0].numel() * x[0].nbytes
            for some in rows.split(max(1, GATHERED_BYTES // bytes_per_step)):
                yield from x.index_select(0, some.flatten()).unflatten(0, some.shape)
            first = last

    def _masks(self, keys: Tensor, step: int, width: int) -> list[Tensor]:
        """The masks of each dropout layer in a step of the clients with these keys."""
        if self.model.dropout is None:
            return []
        rate, shapes = self.model.dropout
        keys = fold(keys, step)
        return [
            dropout_mask(fold(keys, layer), width * math.prod(shape), rate).unflatten(
                -1, (width, *shape)
            )
            for layer, shape in enumerate(shapes)
        ]

    def _keys(self, stream: Stream, clients: Indices, round_index: int) -> Tensor:
        ids = torch.from_numpy(clients).to(self.examples.x.device)
        return client_keys(self.seed, stream, round_index, ids)

    def _losses(self, params: Tensor, clients: Indices) -> Tensor:
        """Mean training loss of each client, one by one: the last bits depend on shapes."""
        offsets = self.examples.offsets
        losses = []
        for client in clients.tolist():
            rows = self.examples.order[offsets[client] : offsets[client + 1]]
            loss, _ = score(self.model, params, self.examples.x[rows], self.examples.y[rows])
            losses.append(loss.mean())
        return torch.stack(losses).unsqueeze(-1)


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale each client's gradient down to `max_norm`, as `torch.nn.utils.clip_grad_norm_` does."""
    norm = torch.linalg.vector_norm(grad, dim=-1, keepdim=True)
    return grad * torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def _first(tensors: Iterable[Tensor], num: int) -> list[Tensor]:
    return [tensor[:num] for tensor in tensors]
