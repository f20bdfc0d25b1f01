"""How much memory clients need while they are trained together."""

import math

import numpy as np
import torch

from fedcome_ray.clients.batches import rounded_up
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod
from fedcome_ray.models.model import Model
from fedcome_ray.numerics import device

ON_CPU = 256 * 2**20
"""Bytes that a shard may use for the clients it trains together, unless told otherwise."""
LEAST = 64 * 2**20  # on a GPU that its data fill: less is not worth trying
USABLE = 0.8
"""Share of what is free on a GPU: the rest is lost between tensors, and to its libraries."""


def for_blocks(where: torch.device, num_bytes_held: int) -> int:
    """Bytes for blocks on a device that holds so much already: examples and reports."""
    if where.type != "cuda":
        return ON_CPU
    # Inputs twice: the last of those that were fetched are in use while the next ones are.
    free = device.memory_for(where) - num_bytes_held - 2 * gathered_bytes(where)
    return max(LEAST, int(USABLE * free))


def gathered_bytes(where: torch.device) -> int:
    """Inputs of steps that are fetched at once: on a CPU never more than the cache holds."""
    return 2**20 if where.type == "cpu" else 2**25


def bytes_per_client(
    model: Model, method: AnyMethod, local: LocalConfig, width: int, size: int
) -> int:
    """Of one client with so many examples in a block whose batches have this width."""
    drawn = sum(map(math.prod, model.dropout.shapes)) if model.dropout else 0
    per_example = 2 * model.activations + 4 * drawn  # forwards and backwards; masks, random bits
    return bytes_kept(model, method, local, width, size) + 4 * width * per_example


def bytes_kept(model: Model, method: AnyMethod, local: LocalConfig, width: int, size: int) -> int:
    """The same without what single steps need."""
    vectors = 4  # params, update, gradient, a temporary one
    vectors += 2 * len(method.init_client(torch.zeros(1)))  # states before and after
    if method.start is not None:
        vectors += 1
    if method.correct is not parts.uncorrected or not local.is_plain:
        vectors += 1  # the corrected gradient
    if local.momentum:
        vectors += 1
    num_steps = int(local.num_steps(np.array(size)))
    num_epochs = rounded_up(int(local.num_epochs(np.array(size))))  # the most of its block
    # 64-bit numbers: orders of examples while they are drawn; then rows, labels, weights of steps.
    indices = 2 * (5 * num_epochs * size + 6 * num_steps * width)
    return 4 * (vectors * model.dim + indices)
