"""What a finished trial leaves as tables: results, data and similarities of clients."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.population import Population
from fedcome_ray.samplers.table import DenseTable


class ClientHistory(NamedTuple):
    """Every client's results in the evaluated rounds."""

    rounds: NDArray[np.int64]  # [evaluations]
    test_loss: NDArray[np.float32]  # [evaluations, num_clients], NaN where not evaluated
    test_accuracy: NDArray[np.float32]
    train_loss: NDArray[np.float32]
    personal_loss: NDArray[np.float32]
    personal_accuracy: NDArray[np.float32]


def client_table(history: ClientHistory) -> Any:
    """Every client's results as a data frame with a row for each round and client."""
    import pandas as pd  # slow to import

    num_rounds, num_clients = history.test_loss.shape
    return pd.DataFrame(
        {
            "round": np.repeat(history.rounds.astype(np.int32), num_clients),
            "client": np.tile(np.arange(num_clients, dtype=np.int32), num_rounds),
            "test_loss": history.test_loss.ravel(),
            "test_accuracy": history.test_accuracy.ravel(),
            "train_loss": history.train_loss.ravel(),
            "personal_loss": history.personal_loss.ravel(),
            "personal_accuracy": history.personal_accuracy.ravel(),
        }
    )


def population_table(population: Population) -> Any:
    """What every client has, as a data frame: examples and, as words, classes if they are known.

    Those of drawn examples are not: to draw all of them could take longer than the trial.
    """
    import pandas as pd

    train, test = population.train, population.test
    labels = np.split(train.labels(), train.offsets[1:-1]) if train.draw is None else []
    classes = [" ".join(map(str, np.unique(own))) for own in labels]
    return pd.DataFrame(
        {
            "client": np.arange(population.num_clients, dtype=np.int32),
            "num_train": train.sizes,
            "num_test": test.sizes,
            "classes": classes or None,
        }
    )


def similarity_table(table: DenseTable) -> Any:
    """The sampler's memory as a data frame with a row for each ordered pair of clients."""
    import pandas as pd

    client, other = np.indices(table.values.shape, dtype=np.int32)
    values = table.values.astype(np.float32)
    return pd.DataFrame(
        {"client": client.ravel(), "other": other.ravel(), "similarity": values.ravel()}
    )
