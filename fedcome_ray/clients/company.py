"""Does a client's training, on this machine, depend on the company in which it is trained?

It must not: the number of shards, and which clients a round draws, would change results. The
libraries are told so (`fedcome_ray.numerics.environment`); here is the proof that they obey. A few
small blocks of each kind of model are trained together, in parts and client by client.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch

from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.method import Cohort
from fedcome_ray.numerics.device import CPU
from fedcome_ray.numerics.libraries import Arithmetic, arithmetic

CLASSES = 4


class Case(NamedTuple):
    """A kind of training, with clients of these sizes."""

    settings: dict[str, Any]
    feature_shape: tuple[int, ...]
    sizes: tuple[int, ...]


# Batches of 1, 2, 3, 49 and 50 examples, and params of an odd number: libraries multiply by other
# routines for short matrices, for single ones, and for those that do not begin at a round address.
SIZES = (1, 1, 2, 3, 49, 50, 50, 101)
CASES = {
    "dense": Case({"model": {"name": "mlp"}}, (17,), SIZES),
    "dense, corrected": Case(
        {"model": {"name": "mlp", "hidden": [15]}, "method": {"name": "scaffold"}}, (17,), SIZES
    ),
    # By the matrix products of PyTorch; the others in code that was compiled for them.
    "dense, clipped": Case({"model": {"name": "mlp"}, "local": {"clip_norm": 0.5}}, (17,), SIZES),
    "dense, thin": Case(
        {"model": {"name": "mlp", "hidden": [1]}, "local": {"momentum": 0.9}}, (34,), (9, 9)
    ),
    "convolutional": Case(
        {"model": {"name": "conv2", "hidden": 33}, "method": {"name": "feddyn"}},
        (1, 10, 10),
        (1, 2, 3, 7),
    ),
}


@cache
def computed_with(device: torch.device) -> Arithmetic:
    """What this process computes with on this device, and whether company shows in its results."""
    dependent = dependent_kinds(device)
    company = f"dependent: {'; '.join(dependent)}" if dependent else "independent"
    return {**arithmetic(device), "company": company}


def dependent_kinds(device: torch.device = CPU) -> list[str]:
    """The kinds of training that depend on company; there should be none."""
    return [name for name, case in CASES.items() if not is_independent(case, device)]


def is_independent(case: Case, device: torch.device = CPU) -> bool:
    """Whether every client is trained to the same bits in all the companies that are tried."""
    population = random_population(case.sizes, case.feature_shape, CLASSES)
    shard = Shard(Trial.model_validate(case.settings), population, device)
    received = first_message(shard, len(case.sizes))

    def updates(clients: Cohort) -> torch.Tensor:
        return shard.train(received, clients, 0).update

    together = updates(tuple(range(len(case.sizes))))
    return all(
        torch.equal(updates(clients), together[list(clients)])
        for clients in companies(len(case.sizes))
    )


def companies(num_clients: int) -> Iterator[Cohort]:
    """Each client alone; the first, the last, the even and the odd ones."""
    everybody = tuple(range(num_clients))
    yield from ((client,) for client in everybody)
    yield from (everybody[:-1], everybody[1:], everybody[::2], everybody[1::2])
