"""What a trial holds in memory, by its settings alone."""

import math
from typing import NamedTuple

from fedcome_ray import methods, models
from fedcome_ray.clients.batches import padded_width
from fedcome_ray.clients.memory import bytes_per_client
from fedcome_ray.datasets.population import Description, form_of
from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.numerics import memory

ROUND_BYTES = 2_000  # a round of the history
CLIENT_BYTES = 40  # a client's five results in an evaluation: as kept, and as a checkpoint has them


class TrialMemory(NamedTuple):
    """Bytes of a trial's processes, beside what the libraries take."""

    examples: int
    reports: int  # of a cohort, as reported and joined at the server
    client: int  # one in training
    history: int


def memory_of(trial: Trial, shape: Description) -> TrialMemory:
    model = models.build(trial.model, *form_of(shape))
    size = math.ceil(shape.num_train / shape.num_clients)
    width = padded_width(size, trial.local.batch_size)
    num_evaluations = 1 + trial.rounds // trial.eval_every
    num_kept = 0 if shape.are_drawn else shape.num_train + shape.num_test
    return TrialMemory(
        num_kept * shape.example_bytes,
        2 * trial.cohort_size_of(shape.num_clients) * 4 * model.dim,
        bytes_per_client(model, methods.build(trial.method), trial.local, width, size),
        trial.rounds * ROUND_BYTES + num_evaluations * shape.num_clients * CLIENT_BYTES,
    )


def check_memory(trial: Trial, shape: Description) -> None:
    """Refuse a trial that this machine, or anything, cannot hold."""
    if shape.num_clients > shape.num_train:
        raise ConfigError(
            f"data.num_clients: {shape.num_clients} clients cannot share {shape.num_train} "
            f"training examples"
        )
    own = memory_of(trial, shape)
    memory.check_fits(own.client, "model, local.epochs: a client in training")
    memory.check_fits(own.history, "rounds: the history")
    memory.check_fits(sum(own), "model, cohort_size, participation")
