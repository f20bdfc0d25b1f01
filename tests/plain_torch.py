"""Local training as one writes it in PyTorch: modules, autograd, `torch.optim`, one client.

Nothing here knows our engine. It is the oracle of the tests, and the rival of the benchmark.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters


def mlp(features: int = 784, hidden: int = 64, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def logistic(features: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(features, classes))


def conv2(classes: int = 62, dropout: float = 0.5, flat: int = 1600) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout),
        nn.Flatten(), nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, classes),
    )  # fmt: skip


def conv4(
    classes: int = 10, hidden: int = 512, dropout: float = 0.3, flat: int = 1600
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout),
        nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout),
        nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )  # fmt: skip


def mcmahan(channels: int, classes: int, flat: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, classes),
    )  # fmt: skip


def train(
    module: nn.Module,
    start: Tensor,
    batches: Iterable[tuple[Tensor, Tensor]],
    lr: float,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    momentum: float = 0.0,
) -> Tensor:
    """The params after SGD over these batches."""
    vector_to_parameters(start.clone(), module.parameters())
    optimiser = torch.optim.SGD(
        module.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay
    )
    module.train()
    for x, y in batches:
        optimiser.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        if clip_norm is not None:
            clip_grad_norm_(module.parameters(), clip_norm)
        optimiser.step()
    return parameters_to_vector(module.parameters()).detach()
