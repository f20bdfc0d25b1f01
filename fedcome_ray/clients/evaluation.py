"""Evaluation of the server's params on every client's test examples, in one pooled pass."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcome_ray import metrics
from fedcome_ray.datasets.population import Indices
from fedcome_ray.models import Model

# Examples are scored in chunks of this size whatever the number of shards: the last bits of a
# matrix product depend on its shape, and results must not depend on the sharding.
CHUNK = 512


class Scores(NamedTuple):
    """Loss and correctness of single examples, in the split's order."""

    loss: NDArray[np.float32]
    correct: NDArray[np.bool_]


class Evaluation(NamedTuple):
    """Results of the server's params on the test, or the training, examples."""

    loss: float  # mean over all examples
    accuracy: float  # share of all examples: clients weigh by their number of them
    client_loss: NDArray[np.float64]  # [num_clients]
    client_accuracy: NDArray[np.float64]  # [num_clients]

    @property
    def summary(self) -> dict[str, float]:
        """What is tracked every round."""
        ordered = np.sort(self.client_accuracy)
        tenth = max(1, round(len(ordered) / 10))
        return {
            metrics.ACCURACY: self.accuracy,
            metrics.CLIENT_MEAN: float(ordered.mean()),
            metrics.CLIENT_STD: float(ordered.std()),
            metrics.WORST_DECILE: float(ordered[:tenth].mean()),
            metrics.BEST_DECILE: float(ordered[-tenth:].mean()),
            metrics.LOSS: self.loss,
            metrics.LOSS_CLIENT_MAX: float(self.client_loss.max()),
        }

    @property
    def train_summary(self) -> dict[str, float]:
        """The same for an evaluation on the training examples."""
        return {metrics.LOSS_TRAIN: self.loss, metrics.ACCURACY_TRAIN: self.accuracy}


def score(model: Model, params: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and correctness of each example."""
    with torch.inference_mode():
        logits = model.logits(params, x).to(params.dtype)  # autocast may have lowered them
        return functional.cross_entropy(logits, y, reduction="none"), logits.argmax(-1) == y


def evaluation(scores: Scores, offsets: Indices) -> Evaluation:
    """Results per client by segment sums over the pooled examples."""
    sizes = np.diff(offsets)
    losses = np.add.reduceat(scores.loss.astype(np.float64), offsets[:-1])
    hits = np.add.reduceat(scores.correct.astype(np.int64), offsets[:-1])
    return Evaluation(
        loss=float(losses.sum() / sizes.sum()),
        accuracy=float(hits.sum() / sizes.sum()),
        client_loss=losses / sizes,
        client_accuracy=hits / sizes,
    )
