"""Local training of a block of clients, once for all methods."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.clients.batches import (
    ClientBlock,
    ClientExamples,
    Plan,
    course,
    draw_masks,
    plan,
)
from fedcome_ray.clients.captured import StaticSteps
from fedcome_ray.clients.evaluation import has_code, score
from fedcome_ray.clients.memory import gathered_bytes
from fedcome_ray.datasets.population import Indices
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.methods.method import Affine, AnyMethod, Report
from fedcome_ray.models.model import Batch, Compiled, Model, Rule, views
from fedcome_ray.numerics.geometry import clip
from fedcome_ray.numerics.randomness import Stream, client_keys, fold, round_key

CACHE = 4 * 2**20
"""Bytes of params that clients trained together should have on a CPU: they are read and written
in every step, so groups that leave the cache are slower (measured on an MLP of 50,890 params)."""
SCORED_TOGETHER = 4096  # examples of a cohort on a GPU, whoever they belong to


class General(NamedTuple):
    """The correction of a block by a method that has to be asked in every step."""

    method: AnyMethod
    received: Any
    state: Any

    def __call__(self, grad: Tensor, params: Tensor) -> Tensor:
        return self.method.correct(grad, params, self.received, self.state)

    def of(self, clients: slice) -> "General":
        """That of some clients of the block."""
        return self._replace(state=of_some(self.state, clients))


@dataclass(frozen=True)
class Trainer:
    """Trains blocks of clients of a trial, on the device of their examples."""

    model: Model
    method: AnyMethod
    local: LocalConfig
    examples: ClientExamples
    seed: int
    batches: Stream = Stream.BATCHES
    dropout: Stream = Stream.DROPOUT
    static_steps: StaticSteps | None = None
    """If given, they take the steps, instead of the loops below."""

    @cached_property
    def is_compiled(self) -> bool:
        """Whether compiled code takes all steps of a client: its company needs no common shape."""
        is_affine = self.method.terms is not None and self.local.is_plain
        return is_affine and self.static_steps is None and has_code(self.model, self.examples)

    @torch.no_grad()
    def train(
        self,
        clients: Indices,
        num_steps: Indices,
        width: int,
        received: Any,
        client_state: Any,
        round_index: int,
        update: Tensor | None = None,
    ) -> tuple[Any, Report]:
        """So many local steps of a block of clients -> (their next states, their report).

        Batches are padded to `width`, unless it is compiled code that trains. Updates are written
        to the memory given, if any.
        """
        lr = self.local.lr_at(round_index)
        block = self.examples.block(clients, num_steps)
        start = self._start(received.params, client_state)
        if update is None:
            update = start.new_empty(len(clients), self.model.dim)
        if self.is_compiled:
            self._descend_compiled(update, start, received, client_state, block, round_index, lr)
        else:
            steps = self._plan(block, width, round_index)
            keys = self._dropout_keys(block, round_index)
            if self.static_steps is not None:
                static = self.static_steps.of(len(clients), width, received)
                static.descend(update, block, steps, start, received, client_state, keys, lr)
            else:
                self._descend(update, start, received, client_state, steps, keys, lr)
        unknown = start.new_full((len(clients), 1), torch.nan)
        report = Report(
            update=update,
            loss=self._losses(received.params, block) if self.method.uses_loss else unknown,
            total_lr=lr * path(block.num_steps, self.local.momentum).to(start.dtype).unsqueeze(-1),
            num_examples=block.num_examples.to(start.dtype).unsqueeze(-1),
        )
        return self._carry(received, client_state, report), report

    def _start(self, params: Tensor, client_state: Any) -> Tensor:
        """Where clients start: `[dim]` for all of them, or a row for each."""
        return params if self.method.start is None else self.method.start(params, client_state)

    def _descend_compiled(
        self,
        update: Tensor,
        start: Tensor,
        received: Any,
        state: Any,
        block: ClientBlock,
        round_index: int,
        lr: float,
    ) -> None:
        """The updates of a block, by code that takes all steps of a client at once."""
        assert isinstance(self.model, Compiled)
        assert self.method.terms is not None
        key = round_key(self.seed, self.batches, round_index)
        steps = course(self.examples, block, self.local.batch_size, key)
        starts = start.expand_as(update)
        for some in self._groups(update):
            rule = self._rule(self.method.terms(received, of_some(state, some)), lr)
            self.model.descend(update[some], starts[some], steps.of(some), rule)

    def _descend(
        self,
        update: Tensor,
        start: Tensor,
        received: Any,
        state: Any,
        steps: Plan,
        keys: Tensor,
        lr: float,
    ) -> None:
        """The updates of a block."""
        starts = start.expand_as(update)
        for some in self._groups(update):
            batches = self._batches(steps.of(some), keys[some])
            correction = self._correction(received, of_some(state, some))
            if isinstance(correction, Affine) and self.local.is_plain:
                rule = self._rule(correction, lr)
                self._descend_fused(update[some], starts[some], rule, batches)
            else:
                self._descend_by_gradients(update[some], starts[some], correction, batches, lr)

    def _carry(self, received: Any, state: Any, report: Report) -> Any:
        """The next states of a block."""
        if not state:
            return state
        following = type(state)(*map(torch.empty_like, state))
        for some in self._groups(report.update):
            carried = self.method.carry(received, of_some(state, some), report.of(some))
            for whole, part in zip(following, carried, strict=True):
                whole[some] = part  # while the cache has it
        return following

    def _groups(self, block: Tensor) -> Iterator[slice]:
        """Clients of a block that are computed together: on a CPU as many as the cache holds."""
        most = len(block)
        if not self.model.is_stacked(block.device):
            most = 1
        elif block.device.type == "cpu":
            most = max(1, CACHE // block[0].nbytes)
        for first in range(0, len(block), most):
            yield slice(first, first + most)

    def _correction(self, received: Any, state: Any) -> Affine | General:
        if self.method.terms is None:
            return General(self.method, received, state)
        return self.method.terms(received, state)

    def _rule(self, correction: Affine, lr: float) -> Rule:
        offset, pull, share = correction
        return Rule(1 - lr * (self.local.weight_decay + pull), -lr * share, lr, offset)

    def _descend_fused(
        self, update: Tensor, start: Tensor, rule: Rule, batches: Iterator[Batch]
    ) -> None:
        """Every tensor has memory of its own, to which gradients are added as they arise."""
        origin = views(start, self.model.shapes)
        tensors = [part.clone(memory_format=torch.contiguous_format) for part in origin]
        active = tensors
        offsets = []
        if rule.offset is not None:
            offsets = views(rule.offset.expand_as(start), self.model.shapes)
        for batch in batches:
            if len(batch.y) < len(active[0]):
                active = _first(tensors, len(batch.y))
                offsets = _first(offsets, len(batch.y))
            self.model.add_gradient(active, active, batch, keep=rule.keep, scale=rule.scale)
            for part, addend in zip(active, offsets, strict=False):
                part.sub_(addend, alpha=rule.lr)
        places = views(update, self.model.shapes)
        for part, begin, place in zip(tensors, origin, places, strict=True):
            torch.sub(part, begin, out=place)

    def _descend_by_gradients(
        self,
        update: Tensor,
        start: Tensor,
        correction: Affine | General,
        batches: Iterator[Batch],
        lr: float,
    ) -> None:
        """Gradients are formed in full, for a correction or a clipping that has to see them."""
        params = start.clone()
        grad = torch.zeros_like(params)
        velocity = torch.zeros_like(params) if self.local.momentum else params[:, :0]
        tensors, grads = views(params, self.model.shapes), views(grad, self.model.shapes)
        for batch in batches:
            num = len(batch.y)
            self.model.add_gradient(
                _first(grads, num), _first(tensors, num), batch, keep=0.0, scale=1.0
            )
            active = params[:num]
            step = correction.of(slice(num))(grad[:num], active)
            if self.local.clip_norm is not None:
                step = clip(step, self.local.clip_norm)
            # Weight decay comes after clipping, as in PyTorch's SGD behind clip_grad_norm_.
            if self.local.momentum:
                moving = velocity[:num].mul_(self.local.momentum).add_(step)
                moving.add_(active, alpha=self.local.weight_decay)
                active.sub_(moving, alpha=lr)
            else:
                active.mul_(1 - lr * self.local.weight_decay).sub_(step, alpha=lr)
        torch.sub(params, start, out=update)

    def _plan(self, block: ClientBlock, width: int, round_index: int) -> Plan:
        keys = client_keys(self.seed, self.batches, round_index, block.ids)
        return plan(self.examples, block, width, self.local.batch_size, keys)

    def _dropout_keys(self, block: ClientBlock, round_index: int) -> Tensor:
        if self.model.dropout is None:
            return block.ids  # not used
        return client_keys(self.seed, self.dropout, round_index, block.ids)

    def _batches(self, steps: Plan, keys: Tensor) -> Iterator[Batch]:
        labels = self.examples.y[steps.rows]
        dropout = self.model.dropout
        is_stacked = self.model.is_stacked(labels.device)
        for step, x in enumerate(self._inputs(steps)):
            num, width = x.shape[:2]
            if not is_stacked:  # a client that is always on its own needs no padding
                width = int(steps.num_real[step, :num].max())
            yield Batch(
                x[:, :width],
                labels[step, :num, :width],
                steps.weight[step, :num, :width],
                draw_masks(dropout, fold(keys[:num], step), width) if dropout else (),
            )

    def _inputs(self, steps: Plan) -> Iterator[Tensor]:
        """Of each step, the inputs of the clients that take it: `[clients, width, ...]`.

        Only until the next step: all are fetched into the same memory, which stays in the cache.
        """
        per_step = steps.rows[0].numel()
        bytes_per_step = per_step * 4 * self.examples.x[0].numel()
        at_once = max(1, gathered_bytes(steps.rows.device) // bytes_per_step)
        room = self.examples.room_for(min(at_once, len(steps.rows)) * per_step)
        first = 0
        for num, run in groupby(steps.num_active):
            last = first + len(list(run))
            for some in steps.rows[first:last, :num].split(at_once):
                yield from self.examples.fetch(some.flatten(), room).unflatten(0, some.shape)
            first = last

    @torch.no_grad()
    def losses(self, params: Tensor, clients: Indices) -> Tensor:
        """Mean training loss of each client."""
        no_steps = np.zeros_like(clients)
        return self._losses(params, self.examples.block(clients, no_steps))

    def _losses(self, params: Tensor, block: ClientBlock) -> Tensor:
        if params.device.type == "cpu":
            return self._losses_one_by_one(params, block)
        return self._losses_together(params, block)

    def _losses_one_by_one(self, params: Tensor, block: ClientBlock) -> Tensor:
        """On a CPU, where the last bits depend on shapes and must not depend on company."""
        offsets = self.examples.offsets
        losses = []
        for client in block.clients.tolist():
            rows = self.examples.order[offsets[client] : offsets[client + 1]]
            loss, _ = score(self.model, params, self.examples, rows)
            losses.append(loss.mean())
        return torch.stack(losses).unsqueeze(-1)

    def _losses_together(self, params: Tensor, block: ClientBlock) -> Tensor:
        """On a GPU, which single clients would leave idle."""
        sizes, total = block.num_examples, int(block.sizes.sum())
        ends = sizes.cumsum(0)
        owner = torch.repeat_interleave(sizes, output_size=total)
        place = torch.arange(total, device=params.device) + (block.starts - ends + sizes)[owner]
        losses = [
            score(self.model, params, self.examples, rows)[0]
            for rows in self.examples.order[place].split(SCORED_TOGETHER)
        ]
        # Sums over padded rows: adding to the owners' places would not keep the order of sums.
        slots = torch.arange(int(block.sizes.max()), device=params.device)
        is_real = slots < sizes.unsqueeze(-1)
        padded = torch.cat(losses)[(ends - sizes).unsqueeze(-1) + slots * is_real] * is_real
        return (padded.sum(-1) / sizes).unsqueeze(-1)


def path(num_steps: Tensor, momentum: float) -> Tensor:
    """How often the gradients of so many steps count in the update, together.

    Each counts once, and with momentum in all later steps too: the last once, the one before it
    1 + momentum times, and so on. In FedNova's publication it is the norm of `a_i`.
    """
    num = num_steps.double()
    if not momentum:
        return num
    return (num - momentum * (1 - momentum**num) / (1 - momentum)) / (1 - momentum)


def of_some(state: Any, clients: slice) -> Any:
    """The states of some clients of a block."""
    return type(state)(*(field[clients] for field in state))


def _first(tensors: Iterable[Tensor], num: int) -> list[Tensor]:
    return [tensor[:num] for tensor in tensors]
