"""What every peer is given to do, and how it tells that a round is done.

Imported in the environments of all peers, so by NumPy alone; PyTorch only where it is asked for.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

ROOT = Path(__file__).parents[3]
CLASSES = 10
FEATURE_SHAPE = (1, 28, 28)
ROUNDS = 20


@dataclass(frozen=True)
class Workload:
    """Clients of one size, who all take part in every round of one epoch of plain SGD."""

    name: str
    title: str
    model: str  # `mlp` or `conv2`
    num_clients: int
    examples_per_client: int
    pieces: int  # of the examples sorted by class, for each client
    num_test: int
    batch_size: int
    lr: float


WORKLOADS = {
    one.name: one
    for one in (
        Workload(
            "mnist_full", "MLP 784-64-10, 100 clients x 600", "mlp",
            num_clients=100, examples_per_client=600, pieces=2,
            num_test=10_000, batch_size=50, lr=0.05,
        ),
        Workload(
            "cnn", "CNN of two convolutions, 20 clients x 150", "conv2",
            num_clients=20, examples_per_client=150, pieces=10,
            num_test=2_000, batch_size=10, lr=0.1,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A workload, the file with its examples, and the form in which the peer is to do it.

    It keeps nothing that it reads: some peers send it to their clients.
    """

    workload: Workload
    path: Path
    form: str

    def start(self) -> NDArray[np.float32]:
        """The initial params, one flat vector as `torch.nn.utils.parameters_to_vector` has it."""
        return self._read("start")[0]

    def train(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Images [clients, examples, 1, 28, 28] and labels [clients, examples]."""
        x, y = self._read("x_train", "y_train")
        sizes = self.workload.num_clients, self.workload.examples_per_client
        return _pixels(x).reshape(*sizes, *FEATURE_SHAPE), y.astype(np.int64).reshape(sizes)

    def test(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        x, y = self._read("x_test", "y_test")
        return _pixels(x), y.astype(np.int64)

    def module(self) -> "nn.Module":
        """The model in PyTorch, with the initial params."""
        import torch
        from torch.nn.utils import vector_to_parameters

        from tests import plain_torch

        make = {"mlp": plain_torch.mlp, "conv2": lambda: plain_torch.conv2(CLASSES, dropout=0.0)}
        module = make[self.workload.model]()
        vector_to_parameters(torch.from_numpy(self.start()), module.parameters())
        return module

    def report(self, number: int, accuracy: float) -> None:
        """A round is done: say so, and wait until the clocks are read."""
        print(json.dumps({"round": number, "accuracy": float(accuracy)}), flush=True)
        sys.stdin.readline()

    def _read(self, *names: str) -> list[NDArray[Any]]:
        with np.load(self.path) as arrays:
            return [arrays[name] for name in names]


def _pixels(x: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.divide(x, 255, dtype=np.float32)
