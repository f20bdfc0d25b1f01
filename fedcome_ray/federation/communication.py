"""What a round sends over the network, in bytes, if every client had a machine of its own.

Down, each client of the cohort is sent all that `broadcast` returns. Up, it sends what the server
cannot know by itself: the update, and the loss if the method uses it. The number of examples is
told once, before training, and the sum of the learning rates follows from it; client states stay
with the clients, and evaluation is the experimenter's, not the method's. References send nothing.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from fedcome_ray import metrics
from fedcome_ray.methods.method import AnyMethod, Cohort, Report

NOTHING = {metrics.UP_BYTES: 0.0, metrics.DOWN_BYTES: 0.0}


def traffic(
    method: AnyMethod, cohort: Cohort, received: Iterable[Any], report: Report
) -> dict[str, float]:
    """The bytes of all clients of a round, by the names under which they are tracked."""
    if not method.communicates:
        return NOTHING
    sent = (report.update, report.loss) if method.uses_loss else (report.update,)
    return {
        metrics.UP_BYTES: float(sum(map(_size, sent))),
        metrics.DOWN_BYTES: float(len(cohort) * sum(map(_size, received))),
    }


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, Tensor) else np.asarray(value).nbytes
