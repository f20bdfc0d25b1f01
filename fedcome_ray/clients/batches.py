"""Which examples each client of a block sees in each of its local steps.

Every epoch is a fresh permutation of a client's examples, cut into batches; the last may be
smaller. Steps go on from epoch to epoch. Nothing here depends on the company a client is trained
in, and no shape that reaches its arithmetic does either: that is why any blocks and any shards
give the same bits.
"""

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.datasets.population import Indices
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.models.model import Course, Dropout, Inputs
from fedcome_ray.numerics.device import upload
from fedcome_ray.numerics.machine_code import INTEGER, INTEGERS, WORD, WORDS, Function
from fedcome_ray.numerics.randomness import dropout_mask, fold, random_bits

FLOAT = torch.float32
_SHUFFLE = Function(
    "fedcome_ray.clients.orders",
    "shuffle",
    (
        *(WORD, WORDS, INTEGER),  # the round's key, clients
        *(INTEGERS, INTEGERS, INTEGERS),  # sizes, starts, epochs
        *(INTEGERS, INTEGERS, WORDS, INTEGER),  # order, rows, memory
    ),
    ("fedcome_ray.numerics.tiles",),
)
_NUM_DIGITS = 256


class ClientExamples(NamedTuple):
    """One side of the population, or the part that a shard needs, on the device that trains."""

    x: Tensor  # [examples, ...features]
    y: Tensor  # [examples]
    order: Tensor
    offsets: Indices  # into `order`; on the host: the course of training depends on it
    first: int = 0  # the place of the first in the order of the whole population
    scale: tuple[Tensor, Tensor] | None = None  # factor and shift of bytes, see `Scale`

    @property
    def inputs(self) -> Inputs:
        return Inputs(self.x, self.scale)

    def sizes(self, clients: Indices) -> Indices:
        return self.offsets[clients + 1] - self.offsets[clients]

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of these examples."""
        return self.fetch(rows, self.room_for(len(rows))), self.y[rows]

    def room_for(self, num_examples: int) -> "Room":
        """Memory for the inputs of so many."""
        kept = self.x.new_empty(num_examples, *self.x.shape[1:])
        return Room(kept, kept if self.scale is None else kept.new_empty(kept.shape, dtype=FLOAT))

    def fetch(self, rows: Tensor, room: "Room") -> Tensor:
        """The inputs of these examples, in the room that is given."""
        kept, inputs = (memory[: len(rows)] for memory in room)
        torch.index_select(self.x, 0, rows, out=kept)
        if self.scale is None:
            return inputs
        # One after the other: together they would be rounded once or twice, depending on the place.
        return inputs.copy_(kept).mul_(self.scale[0]).add_(self.scale[1])

    def pooled(self) -> "ClientExamples":
        """The same as those of a single client."""
        return self._replace(offsets=np.array([0, len(self.order)]))

    def block(self, clients: Indices, num_steps: Indices) -> "ClientBlock":
        """What training needs to know of some clients, sent to the device at once."""
        facts = np.stack((clients, self.sizes(clients), self.offsets[clients], num_steps))
        return ClientBlock(clients, facts[1], num_steps, *upload(facts, self.x.device))


class Room(NamedTuple):
    """Memory to fetch examples into."""

    kept: Tensor  # as they are kept
    inputs: Tensor  # as models are given them; the same memory where nothing is to be done


class ClientBlock(NamedTuple):
    """Clients that are trained together. Those that take fewer steps come last."""

    clients: Indices
    sizes: Indices
    steps: Indices
    ids: Tensor  # the clients on the device, and so on
    num_examples: Tensor
    starts: Tensor  # the first place of each in the order of examples
    num_steps: Tensor


class Plan(NamedTuple):
    """The local steps of a block."""

    rows: Tensor  # [steps, clients, width]: examples, and any valid ones as padding
    weight: Tensor  # [steps, clients, width]: 1 / (real examples of the batch), 0 for padding
    num_active: list[int]  # of each step: the clients that take it are the first ones
    num_real: Indices  # [steps, clients]: real examples

    def of(self, clients: slice) -> "Plan":
        """The steps of some clients that stand side by side."""
        first, last, _ = clients.indices(self.rows.shape[1])
        num_active = [min(num, last) - first for num in self.num_active if num > first]
        taken = slice(len(num_active)), clients
        return Plan(self.rows[taken], self.weight[taken], num_active, self.num_real[taken])


def blocks(
    sizes: Indices,
    num_steps: Indices,
    local: LocalConfig,
    most_clients: Callable[[int, int], int],
    are_ragged: bool = False,
) -> Iterator[tuple[int, Indices]]:
    """Cut a cohort into blocks -> (width of their batches, positions in the cohort).

    Clients of a block have one width, about as many epochs, since all are drawn as long as the
    longest, and, as nearly as can be, the same number of steps; ragged ones need nothing in common
    and stay in the cohort's order. How many they may be depends on the width, and on the examples
    that the largest of them has.
    """
    if are_ragged:
        largest = int(sizes.max())
        width = padded_width(largest, local.batch_size)
        num_blocks = -(-len(sizes) // most_clients(width, largest))
        yield from ((width, block) for block in _split(np.arange(len(sizes)), num_blocks))
        return
    epochs = map(rounded_up, local.num_epochs(sizes).tolist())
    widths = (padded_width(size, local.batch_size) for size in sizes.tolist())
    kinds = list(zip(widths, epochs, strict=True))
    order = sorted(range(len(sizes)), key=lambda at: (*kinds[at], -num_steps[at], -sizes[at]))
    for (width, _), group in groupby(order, key=kinds.__getitem__):
        members = np.array(list(group))
        most = most_clients(width, int(sizes[members].max()))
        for block in _split(members, -(-len(members) // most)):
            yield width, block


def _split(members: Indices, num_blocks: int) -> list[Indices]:
    """Into blocks as nearly of one size as can be."""
    return [members] if num_blocks == 1 else np.array_split(members, num_blocks)


def padded_width(size: int, batch_size: int | None) -> int:
    """The length of a client's batches with padding, which depends on nothing but the client.

    Batches that hold all the client has are padded to 2, 3, 4, 6, 8, 12, 16, 24, ... examples: few
    enough lengths for clients to have company, near enough to waste a sixth on average. Not to 1,
    where the library multiplies a block of one client by another routine, with other bits.
    """
    rounded = rounded_up(size)
    return max(2, min(rounded, batch_size or rounded))


def rounded_up(number: int) -> int:
    """To 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    power = 1 << (number - 1).bit_length()
    return power // 4 * 3 if number <= power // 4 * 3 else power


def plan(
    examples: ClientExamples,
    block: ClientBlock,
    width: int,
    batch_size: int | None,
    keys: Tensor,
) -> Plan:
    """The steps of clients whose batches are padded to `width`."""
    device, sizes = keys.device, block.num_examples
    per_epoch = -(-block.sizes // (batch_size or block.sizes))
    epochs = int((-(-block.steps // per_epoch)).max())
    most_steps = int(block.steps.max())
    batches = -(-sizes // (sizes if batch_size is None else batch_size))  # of an epoch
    step = torch.arange(most_steps, device=device).unsqueeze(-1)
    epoch = (step // batches).clamp_(max=epochs - 1)  # [steps, clients]
    first = step % batches * (batch_size or 0)
    left = sizes - first
    count = left.clamp(max=batch_size) if batch_size is not None else left  # real examples

    orders = _shuffled(fold(keys.unsqueeze(-1), torch.arange(epochs, device=device)), block)
    longest = orders.shape[-1]
    number = torch.arange(len(sizes), device=device)
    places = (number * epochs + epoch) * longest + first
    slots = torch.arange(width, device=device)
    counts = count.unsqueeze(-1)
    is_real = slots < counts
    # Padding repeats the batch's first example.
    own = orders.flatten()[places.unsqueeze(-1) + slots * is_real]
    return Plan(
        rows=examples.order[own + block.starts.unsqueeze(-1)],
        weight=is_real.to(torch.result_type(examples.x, 0.0)) / counts,
        num_active=_num_active(block.steps),
        num_real=_num_real(block.sizes, per_epoch, most_steps, batch_size),
    )


def course(
    examples: ClientExamples, block: ClientBlock, batch_size: int | None, key: np.uint64
) -> Course:
    """The same steps for compiled code, where the round has this key."""
    sizes, num_steps = block.sizes, block.steps
    most = int(sizes.max())
    batch_size = batch_size or most
    num_epochs = -(-num_steps // -(-sizes // batch_size))
    ends = np.cumsum(num_epochs * sizes)
    rows = torch.empty(int(ends[-1]), dtype=torch.int64)
    memory = np.empty(4 * most + _NUM_DIGITS, np.uint64)
    clients, starts = (np.ascontiguousarray(block.clients), examples.offsets[block.clients])
    _SHUFFLE(
        *(int(key), clients.ctypes.data, len(clients)),
        *(sizes.ctypes.data, starts.ctypes.data, num_epochs.ctypes.data),
        *(examples.order.data_ptr(), rows.data_ptr(), memory.ctypes.data, most),
    )
    starts = ends - num_epochs * sizes
    return Course(examples.inputs, examples.y, rows, starts, sizes, num_steps, batch_size)


def rounded_down(number: int) -> int:
    """To one of those."""
    power = 1 << (number.bit_length() - 1)
    return power * 3 // 2 if number >= power * 3 // 2 else power


def draw_masks(dropout: Dropout, keys: Tensor, width: int) -> list[Tensor]:
    """The masks of each dropout layer for a step of clients with these keys of it."""
    return [
        dropout_mask(fold(keys, layer), width * math.prod(shape), rate).unflatten(
            -1, (width, *shape)
        )
        for layer, (rate, shape) in enumerate(zip(*dropout, strict=True))
    ]


def _num_active(num_steps: Indices) -> list[int]:
    """Of each step: the clients that take it."""
    ends = np.bincount(num_steps)  # how many take so many steps
    return list(map(int, len(num_steps) - np.cumsum(ends)[:-1]))


def _num_real(
    sizes: Indices, per_epoch: Indices, most_steps: int, batch_size: int | None
) -> Indices:
    """Of each step and client: the real examples that it has in it."""
    step = np.arange(most_steps)[:, None]
    first = (step % per_epoch) * (batch_size or 0)
    return np.minimum(sizes - first, batch_size or sizes)


def _shuffled(keys: Tensor, block: ClientBlock) -> Tensor:
    """Random orders of each client's positions `0..size-1`, then padding: `[*keys, longest]`."""
    longest = int(block.sizes.max())
    bits = random_bits(keys, longest)
    if block.sizes.min() < longest:
        places = torch.arange(longest, device=keys.device)
        padding = places >= block.num_examples[:, None, None]
        bits.masked_fill_(padding, np.iinfo(np.int64).max)
    return bits.argsort(dim=-1, stable=True)
