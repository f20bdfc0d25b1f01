"""What the engine is measured on: three published settings, on synthetic data of their shape.

Each is trained by our engine and by two plain loops: the one a researcher writes first, and the
same tuned as far as PyTorch's modules and optimisers go.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from fedcome_ray import models
from fedcome_ray.datasets.population import Examples, Population, Scale, split_in_order
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.models.dense import Dense, layout_of
from fedcome_ray.numerics.machine_code import FLOATS, INTEGER, INTEGERS, Function
from tests import plain_torch

BATCH_SIZE = 50
SCALE = Scale(np.full((1, 1, 1), 1 / 74, np.float32), np.full((1, 1, 1), -1.7, np.float32))
"""Of random bytes, to mean 0 and deviation 1."""


@dataclass(frozen=True)
class Workload:
    """Clients of one size, and what trains on them."""

    name: str
    model: dict[str, Any]
    make_module: Callable[[], nn.Module]
    feature_shape: tuple[int, ...]
    num_classes: int
    num_clients: int
    examples_per_client: int
    cohort_size: int

    @property
    def trial(self) -> Trial:
        return Trial.model_validate({"model": self.model, "local": {"batch_size": BATCH_SIZE}})

    @cached_property
    def population(self) -> Population:
        rng = np.random.default_rng(0)
        num = self.num_clients * self.examples_per_client
        pixels = rng.integers(0, 256, (num, *self.feature_shape), dtype=np.uint8)
        examples = Examples(pixels, rng.integers(0, self.num_classes, num), SCALE)
        each = split_in_order(examples, np.full(self.num_clients, self.examples_per_client))
        return Population(each, each, self.num_classes)

    @cached_property
    def start(self) -> Tensor:
        return models.build(self.trial.model, self.feature_shape, self.num_classes).init(seed=0)

    @cached_property
    def gigaflops(self) -> float:
        """Of a round: what the plain module's forward and backward passes need."""
        module = self.make_module()
        x, y = self.client_tensors(0)
        with FlopCounterMode(display=False) as counter:
            functional.cross_entropy(module(x[:BATCH_SIZE]), y[:BATCH_SIZE]).backward()
        examples = self.cohort_size * self.examples_per_client
        return counter.get_total_flops() / BATCH_SIZE * examples / 1e9

    def client_tensors(self, client: int) -> tuple[Tensor, Tensor]:
        own = slice(client * self.examples_per_client, (client + 1) * self.examples_per_client)
        examples = self.population.train.examples
        x = SCALE.factor * examples.x[own] + SCALE.shift
        return torch.from_numpy(x), torch.from_numpy(examples.y[own])

    @cached_property
    def tensors(self) -> list[tuple[Tensor, Tensor]]:
        """Of every client, as the plain loops have them."""
        return [self.client_tensors(client) for client in range(self.cohort_size)]


MNIST = Workload(
    "mnist_mlp", {"name": "mlp"}, plain_torch.mlp, (1, 28, 28), 10,
    num_clients=100, examples_per_client=600, cohort_size=100,
)  # fmt: skip
FEMNIST = Workload(
    "femnist_cnn", {"name": "conv2"}, plain_torch.conv2, (1, 28, 28), 62,
    num_clients=196, examples_per_client=187, cohort_size=196,
)  # fmt: skip
CIFAR10 = Workload(
    "cifar10_cnn", {"name": "conv4"}, plain_torch.conv4, (3, 32, 32), 10,
    num_clients=100, examples_per_client=500, cohort_size=10,
)  # fmt: skip


_MULTIPLY = Function(
    "tests.benchmarks.dense_products",
    "multiply",
    (INTEGERS, INTEGER, FLOATS, INTEGER, INTEGER),
    ("fedcome_ray.models.dense_descent", "fedcome_ray.numerics.tiles"),
)


def products(workload: Workload) -> Callable[[], None]:
    """The matrix products of a round of a dense network and nothing else, client by client.

    By the code of the engine, on memory made before.
    """
    model = models.build(workload.trial.model, workload.feature_shape, workload.num_classes)
    assert isinstance(model, Dense)
    layout = layout_of(model.widths, BATCH_SIZE, is_training=True)
    last_level, memory = len(model.widths) - 1, torch.rand(layout.num_floats)
    num_steps = workload.examples_per_client // BATCH_SIZE

    def run() -> None:
        places = layout.levels.ctypes.data, last_level, memory.data_ptr()
        for _ in range(workload.cohort_size):
            _MULTIPLY(*places, BATCH_SIZE, num_steps)

    return run


def library_products(workload: Workload, together: int = 20) -> Callable[[], None]:
    """The same by the batched products of PyTorch's library, for so many clients at once."""
    x = torch.rand(together, BATCH_SIZE, math.prod(workload.feature_shape))
    module = workload.make_module()
    weights = [
        part.data.expand(together, -1, -1).clone() for part in module.parameters() if part.ndim == 2
    ]
    values = [x, *(torch.rand(together, BATCH_SIZE, len(weight[0])) for weight in weights)]
    errors = [torch.rand_like(value) for value in values]
    steps = workload.examples_per_client // BATCH_SIZE * workload.cohort_size // together

    def run() -> None:
        for _ in range(steps):
            for weight, below, above in zip(weights, values[:-1], values[1:], strict=True):
                torch.bmm(below, weight.mT, out=above)
            for depth in reversed(range(len(weights))):
                if depth:
                    torch.bmm(errors[depth + 1], weights[depth], out=errors[depth])
                weights[depth].baddbmm_(
                    errors[depth + 1].mT, values[depth], beta=0.999, alpha=-1e-6
                )

    return run


def dataloader_loop(workload: Workload) -> Tensor:
    def batches(x: Tensor, y: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        return DataLoader(TensorDataset(x, y), batch_size=BATCH_SIZE, shuffle=True)

    return _plain_round(workload, batches)


def tuned_loop(workload: Workload) -> Tensor:
    def batches(x: Tensor, y: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(len(y)).split(BATCH_SIZE):
            yield x[rows], y[rows]

    return _plain_round(workload, batches)


def _plain_round(
    workload: Workload, batches: Callable[[Tensor, Tensor], Iterable[tuple[Tensor, Tensor]]]
) -> Tensor:
    module, local = workload.make_module(), workload.trial.local
    updates = torch.empty(workload.cohort_size, len(workload.start))
    for client in range(workload.cohort_size):
        examples = batches(*workload.tensors[client])
        after = plain_torch.train(module, workload.start, examples, local.lr, local.weight_decay)
        updates[client] = after - workload.start
    return updates
