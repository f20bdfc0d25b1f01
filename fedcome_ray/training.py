"""Local training of a block of clients, once for all methods."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.config import LocalConfig
from fedcome_ray.methods.method import AnyMethod, Report
from fedcome_ray.models import Batch, Model
from fedcome_ray.randomness import Stream, client_keys, fold, random_bits


class ClientExamples(NamedTuple):
    """The training side of the population, as tensors on the device that trains."""

    x: Tensor  # [examples, ...features]
    y: Tensor  # [examples]
    order: Tensor
    offsets: Tensor


def train(
    model: Model,
    method: AnyMethod,
    local: LocalConfig,
    examples: ClientExamples,
    clients: Tensor,
    received: Any,
    client_state: Any,
    seed: int,
    round_index: int,
) -> tuple[Any, Report]:
    """The local steps of a block of clients -> (their next states, their report)."""
    lr = local.lr_at(round_index)
    start = received.params
    params = start.expand(len(clients), -1).clone()
    num_steps = torch.zeros(len(clients), 1, dtype=params.dtype)
    for batch, active in local_steps(examples, clients, local, seed, round_index):
        grad = method.correct(model.gradient(params, batch), params, received, client_state)
        if local.clip_norm is not None:
            grad = clip(grad, local.clip_norm)
        # Weight decay comes after clipping, as in PyTorch's SGD behind clip_grad_norm_.
        step = grad.add_(params, alpha=local.weight_decay).mul_(active)
        params.sub_(step, alpha=lr)
        num_steps += active
    sizes = examples.offsets[clients + 1] - examples.offsets[clients]
    report = Report(
        update=params.sub_(start),
        loss=torch.full_like(num_steps, float("nan")),
        total_lr=lr * num_steps,
        num_examples=sizes.to(num_steps.dtype).unsqueeze(-1),
    )
    return method.carry(received, client_state, report), report


def clip(grad: Tensor, max_norm: float) -> Tensor:
    """Scale each client's gradient down to `max_norm`, as `torch.nn.utils.clip_grad_norm_` does."""
    norm = torch.linalg.vector_norm(grad, dim=-1, keepdim=True)
    return grad * torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def local_steps(
    examples: ClientExamples, clients: Tensor, local: LocalConfig, seed: int, round_index: int
) -> Iterator[tuple[Batch, Tensor]]:
    """The batches of a block in step, and which clients still have one, `[clients, 1]`.

    Each epoch is a fresh permutation of a client's examples; its last batch may be smaller.
    """
    starts = examples.offsets[clients]
    sizes = examples.offsets[clients + 1] - starts
    longest = int(sizes.max())
    batch_size = local.batch_size or longest
    batches_per_epoch = (sizes + batch_size - 1) // batch_size  # [clients]
    keys = client_keys(seed, Stream.BATCHES, round_index, clients)
    orders = torch.stack(
        [_shuffle(fold(keys, epoch), sizes, longest) for epoch in range(local.epochs)], dim=1
    )  # [clients, epochs, longest]
    rows = torch.arange(len(clients)).unsqueeze(-1)
    slots = torch.arange(batch_size)
    for step in range(local.epochs * int(batches_per_epoch.max())):
        epoch = (step // batches_per_epoch).clamp(max=local.epochs - 1).unsqueeze(-1)
        position = ((step % batches_per_epoch) * batch_size).unsqueeze(-1) + slots
        active = (step < local.epochs * batches_per_epoch).unsqueeze(-1)
        real = active & (position < sizes.unsqueeze(-1))
        own = orders[rows, epoch, position.clamp(max=longest - 1)]
        chosen = examples.order[(starts.unsqueeze(-1) + own * real)]
        weight = real / real.sum(-1, keepdim=True).clamp(min=1)
        yield Batch(examples.x[chosen], examples.y[chosen], weight), active.to(weight.dtype)


def _shuffle(keys: Tensor, sizes: Tensor, longest: int) -> Tensor:
    """A random order of each client's positions `0..size-1`, then its padding."""
    bits = random_bits(keys, longest)
    padding = torch.arange(longest) >= sizes.unsqueeze(-1)
    return bits.masked_fill(padding, np.iinfo(np.int64).max).argsort(dim=-1, stable=True)
