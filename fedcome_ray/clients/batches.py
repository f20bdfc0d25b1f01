"""Which examples each client of a block sees in each of its local steps.

Every epoch is a fresh permutation of a client's examples, cut into batches; the last may be
smaller. Nothing here depends on the company a client is trained in, and no shape that reaches its
arithmetic does either: that is why any blocks and any shards give the same bits.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.datasets.population import Indices
from fedcome_ray.numerics.randomness import fold, random_bits


class ClientExamples(NamedTuple):
    """One side of the population, its tensors on the device that trains."""

    x: Tensor  # [examples, ...features]
    y: Tensor  # [examples]
    order: Tensor
    offsets: Indices  # on the host: the course of training depends on it

    def sizes(self, clients: Indices) -> Indices:
        return self.offsets[clients + 1] - self.offsets[clients]


class Plan(NamedTuple):
    """The local steps of a block. Clients that have fewer steps come last."""

    rows: Tensor  # [steps, clients, width]: examples, and any valid ones as padding
    weight: Tensor  # [steps, clients, width]: 1 / (real examples of the batch), 0 for padding
    num_active: list[int]  # of each step: the clients that take it are the first ones
    num_real: list[int]  # of each step: the most real examples that a client has in it
    num_steps: Indices  # [clients]


def blocks(
    sizes: Indices, batch_size: int | None, most_clients: Callable[[int], int]
) -> Iterator[tuple[int, Indices]]:
    """Cut a cohort into blocks -> (width of their batches, positions in the cohort).

    Clients of a block have one width and, as nearly as can be, the same number of steps.
    """
    widths = [padded_width(size, batch_size) for size in sizes.tolist()]
    order = sorted(range(len(sizes)), key=lambda position: (widths[position], -sizes[position]))
    for width, group in groupby(order, key=widths.__getitem__):
        members = np.array(list(group))
        for block in np.array_split(members, -(-len(members) // most_clients(width))):
            yield width, block


def padded_width(size: int, batch_size: int | None) -> int:
    """The length of a client's batches with padding, which depends on nothing but the client.

    Batches that hold all the client has are padded to 2, 3, 4, 6, 8, 12, 16, 24, ... examples: few
    enough lengths for clients to have company, near enough to waste a sixth on average. Not to 1,
    where the library multiplies a block of one client by another routine, with other bits.
    """
    power = 1 << (size - 1).bit_length()
    rounded = power // 4 * 3 if size <= power // 4 * 3 else power
    return max(2, min(rounded, batch_size or rounded))


def plan(
    examples: ClientExamples,
    clients: Indices,
    width: int,
    epochs: int,
    batch_size: int | None,
    keys: Tensor,
) -> Plan:
    """The steps of clients, given by decreasing size, whose batches are padded to `width`."""
    device = keys.device
    sizes = examples.sizes(clients)
    per_epoch = -(-sizes // (batch_size or sizes))
    num_steps = epochs * per_epoch
    step = np.arange(num_steps.max())[:, None]
    epoch = np.minimum(step // per_epoch, epochs - 1)  # [steps, clients]
    first = (step % per_epoch) * (batch_size or 0)
    count = np.minimum(sizes - first, batch_size or sizes)  # real examples of the batch

    orders = _shuffled(fold(keys.unsqueeze(-1), torch.arange(epochs, device=device)), sizes)
    longest = orders.shape[-1]
    starts = np.arange(len(clients)) * epochs * longest + epoch * longest + first
    slots = torch.arange(width, device=device)
    counts = torch.from_numpy(count).to(device).unsqueeze(-1)
    is_real = slots < counts
    # Padding repeats the batch's first example.
    places = torch.from_numpy(starts).to(device).unsqueeze(-1) + slots * is_real
    own = orders.flatten()[places] + torch.from_numpy(examples.offsets[clients]).to(device)[:, None]
    return Plan(
        rows=examples.order[own],
        weight=is_real.to(examples.x.dtype) / counts,
        num_active=(num_steps > step).sum(1).tolist(),
        num_real=count.max(1).tolist(),
        num_steps=num_steps,
    )


def _shuffled(keys: Tensor, sizes: Indices) -> Tensor:
    """Random orders of each client's positions `0..size-1`, then padding: `[*keys, longest]`."""
    longest = int(sizes.max())
    bits = random_bits(keys, longest)
    if sizes.min() < longest:
        padding = torch.arange(longest) >= torch.from_numpy(sizes)[:, None, None]
        bits.masked_fill_(padding.to(bits.device), np.iinfo(np.int64).max)
    return bits.argsort(dim=-1, stable=True)
