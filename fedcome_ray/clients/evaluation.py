"""Evaluation of the server's params on every client's test examples, in one pooled pass."""

from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcome_ray import metrics
from fedcome_ray.clients.batches import ClientExamples
from fedcome_ray.datasets.population import Indices
from fedcome_ray.models import Model
from fedcome_ray.models.model import Compiled

# Examples are scored in chunks of this size whatever the number of shards: the last bits of a
# matrix product depend on its shape, and results must not depend on the sharding.
CHUNK = 512


class Scores(NamedTuple):
    """Loss and correctness of single examples, in the split's order."""

    loss: NDArray[np.float32]
    correct: NDArray[np.bool_]


class Evaluation(NamedTuple):
    """Results of the server's params, or of what clients made of them, on one side's examples."""

    loss: float  # mean over all examples
    accuracy: float  # share of all examples: clients weigh by their number of them
    client_loss: NDArray[np.float64]  # [num_clients], NaN where a client has no example to test on
    client_accuracy: NDArray[np.float64]  # likewise

    @property
    def summary(self) -> dict[str, float]:
        """What is tracked every round."""
        mean, std, worst, best = self._spread()
        return {
            metrics.ACCURACY: self.accuracy,
            metrics.CLIENT_MEAN: mean,
            metrics.CLIENT_STD: std,
            metrics.WORST_DECILE: worst,
            metrics.BEST_DECILE: best,
            metrics.LOSS: self.loss,
            metrics.LOSS_CLIENT_MAX: float(np.nanmax(self.client_loss)),
        }

    @property
    def train_summary(self) -> dict[str, float]:
        """The same for an evaluation on the training examples."""
        return {metrics.LOSS_TRAIN: self.loss, metrics.ACCURACY_TRAIN: self.accuracy}

    @property
    def personal_summary(self) -> dict[str, float]:
        """The same for an evaluation after clients trained on their own."""
        mean, std, worst, best = self._spread()
        return {
            metrics.PERSONAL: self.accuracy,
            metrics.PERSONAL_MEAN: mean,
            metrics.PERSONAL_STD: std,
            metrics.PERSONAL_WORST_DECILE: worst,
            metrics.PERSONAL_BEST_DECILE: best,
            metrics.LOSS_PERSONAL: self.loss,
        }

    def _spread(self) -> tuple[float, float, float, float]:
        """Of the clients' accuracies: mean, deviation, means of the worst and the best tenth."""
        ordered = np.sort(self.client_accuracy[~np.isnan(self.client_accuracy)])  # who is tested
        tenth = max(1, round(len(ordered) / 10))
        worst, best = ordered[:tenth].mean(), ordered[-tenth:].mean()
        return float(ordered.mean()), float(ordered.std()), float(worst), float(best)


def score(
    model: Model, params: Tensor, examples: ClientExamples, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss and correctness of each of these examples."""
    if has_code(model, examples):
        return model.score(params, examples.inputs, examples.y, rows)
    with torch.inference_mode():
        x, y = examples.at(rows)
        logits = model.logits(params, x).to(params.dtype)  # autocast may have lowered them
        return functional.cross_entropy(logits, y, reduction="none"), logits.argmax(-1) == y


def has_code(model: Model, examples: ClientExamples) -> TypeGuard[Compiled]:
    """Whether there is compiled code for the model, and the examples fit it.

    Then the bits of scores do not depend on how many examples are scored at once.
    """
    return isinstance(model, Compiled) and examples.inputs.fit_compiled_code


def evaluation(scores: Scores, offsets: Indices) -> Evaluation:
    """Results per client by segment sums over the pooled examples."""
    sizes = np.diff(offsets)
    is_tested = sizes > 0
    starts, counts = offsets[:-1][is_tested], sizes[is_tested]
    losses = np.add.reduceat(scores.loss.astype(np.float64), starts)
    hits = np.add.reduceat(scores.correct.astype(np.int64), starts)
    client_loss, client_accuracy = np.full((2, len(sizes)), np.nan)
    client_loss[is_tested], client_accuracy[is_tested] = losses / counts, hits / counts
    return Evaluation(
        loss=float(losses.sum() / counts.sum()),
        accuracy=float(hits.sum() / counts.sum()),
        client_loss=client_loss,
        client_accuracy=client_accuracy,
    )
