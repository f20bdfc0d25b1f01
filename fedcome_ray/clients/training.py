"""Local training of a block of clients, once for all methods."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from fedcome_ray.clients.batches import ClientBlock, ClientExamples, Plan, draw_masks, plan
from fedcome_ray.clients.captured import StaticSteps
from fedcome_ray.clients.evaluation import score
from fedcome_ray.clients.memory import gathered_bytes
from fedcome_ray.datasets.population import Indices
from fedcome_ray.experiments.trial import LocalConfig
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod, Report
from fedcome_ray.models.model import Batch, Model, views
from fedcome_ray.numerics.geometry import clip
from fedcome_ray.numerics.randomness import Stream, client_keys, fold

SCORED_TOGETHER = 4096  # examples of a cohort on a GPU, whoever they belong to


@dataclass(frozen=True)
class Trainer:
    """Trains blocks of clients of a trial, on the device of their examples."""

    model: Model
    method: AnyMethod
    local: LocalConfig
    examples: ClientExamples
    seed: int
    static_steps: StaticSteps | None = None
    """If given, they take the steps, instead of the loops below."""

    @torch.no_grad()
    def train(
        self, clients: Indices, width: int, received: Any, client_state: Any, round_index: int
    ) -> tuple[Any, Report]:
        """The local steps of a block of clients -> (their next states, their report)."""
        lr = self.local.lr_at(round_index)
        block = self.examples.block(clients)
        steps = self._plan(block, width, round_index)
        keys = self._dropout_keys(block, round_index)
        start = received.params
        if self.static_steps is not None:
            static = self.static_steps.of(len(clients), width, received)
            update = static.descend(block, steps, received, client_state, keys, lr)
        elif self._is_plain:
            batches = self._batches(steps, keys)
            update = self._descend(start, len(clients), batches, lr)
        else:
            batches = self._batches(steps, keys)
            update = self._descend_corrected(received, client_state, len(clients), batches, lr)
        report = Report(
            update=update,
            loss=self._losses(start, block),
            total_lr=lr * steps.num_steps.to(start.dtype).unsqueeze(-1),
            num_examples=block.num_examples.to(start.dtype).unsqueeze(-1),
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

    def _plan(self, block: ClientBlock, width: int, round_index: int) -> Plan:
        keys = client_keys(self.seed, Stream.BATCHES, round_index, block.ids)
        local = self.local
        return plan(self.examples, block, width, local.epochs, local.batch_size, keys)

    def _dropout_keys(self, block: ClientBlock, round_index: int) -> Tensor:
        if self.model.dropout is None:
            return block.ids  # not used
        return client_keys(self.seed, Stream.DROPOUT, round_index, block.ids)

    def _batches(self, steps: Plan, keys: Tensor) -> Iterator[Batch]:
        labels = self.examples.y[steps.rows]
        dropout = self.model.dropout
        is_stacked = self.model.is_stacked(labels.device)
        for step, x in enumerate(self._inputs(steps)):
            num, width = x.shape[:2]
            if not is_stacked:  # a client that is always on its own needs no padding
                width = steps.num_real[step]
            yield Batch(
                x[:, :width],
                labels[step, :num, :width],
                steps.weight[step, :num, :width],
                draw_masks(dropout, fold(keys[:num], step), width) if dropout else (),
            )

    def _inputs(self, steps: Plan) -> Iterator[Tensor]:
        """Of each step, the inputs of the clients that take it: `[clients, width, ...]`."""
        x = self.examples.x
        at_once = gathered_bytes(x.device)
        first = 0
        for num, run in groupby(steps.num_active):
            last = first + len(list(run))
            rows = steps.rows[first:last, :num]
            bytes_per_step = rows[0].numel() * x[0].nbytes
            for some in rows.split(max(1, at_once // bytes_per_step)):
                yield from x.index_select(0, some.flatten()).unflatten(0, some.shape)
            first = last

    def _losses(self, params: Tensor, block: ClientBlock) -> Tensor:
        """Mean training loss of each client, if the method asks for it."""
        if not self.method.uses_loss:
            return params.new_full((len(block.clients), 1), torch.nan)
        if params.device.type == "cpu":
            return self._losses_one_by_one(params, block)
        return self._losses_together(params, block)

    def _losses_one_by_one(self, params: Tensor, block: ClientBlock) -> Tensor:
        """On a CPU, where the last bits depend on shapes and must not depend on company."""
        offsets = self.examples.offsets
        losses = []
        for client in block.clients.tolist():
            rows = self.examples.order[offsets[client] : offsets[client + 1]]
            loss, _ = score(self.model, params, self.examples.x[rows], self.examples.y[rows])
            losses.append(loss.mean())
        return torch.stack(losses).unsqueeze(-1)

    def _losses_together(self, params: Tensor, block: ClientBlock) -> Tensor:
        """On a GPU, which single clients would leave idle."""
        sizes, total = block.num_examples, int(block.sizes.sum())
        ends = sizes.cumsum(0)
        owner = torch.repeat_interleave(sizes, output_size=total)
        place = torch.arange(total, device=params.device) + (block.starts - ends + sizes)[owner]
        losses = [
            score(self.model, params, self.examples.x[rows], self.examples.y[rows])[0]
            for rows in self.examples.order[place].split(SCORED_TOGETHER)
        ]
        # Sums over padded rows: adding to the owners' places would not keep the order of sums.
        slots = torch.arange(int(block.sizes.max()), device=params.device)
        is_real = slots < sizes.unsqueeze(-1)
        padded = torch.cat(losses)[(ends - sizes).unsqueeze(-1) + slots * is_real] * is_real
        return (padded.sum(-1) / sizes).unsqueeze(-1)


def _first(tensors: Iterable[Tensor], num: int) -> list[Tensor]:
    return [tensor[:num] for tensor in tensors]
