"""What a finished trial leaves as tables: results, data and similarities of clients."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.population import Population, Split
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
    """Every client's results, as a table of Arrow with a row for each round and client."""
    num_rounds, num_clients = history.test_loss.shape
    return _table(
        round=np.repeat(history.rounds.astype(np.int32), num_clients),
        client=np.tile(np.arange(num_clients, dtype=np.int32), num_rounds),
        test_loss=history.test_loss.ravel(),
        test_accuracy=history.test_accuracy.ravel(),
        train_loss=history.train_loss.ravel(),
        personal_loss=history.personal_loss.ravel(),
        personal_accuracy=history.personal_accuracy.ravel(),
    )


def population_table(population: Population) -> Any:
    """What every client has: examples and, as words, classes if they are known.

    Those of drawn examples are not: to draw all of them could take longer than the trial.
    """
    train, test = population.train, population.test
    return _table(
        client=np.arange(population.num_clients, dtype=np.int32),
        num_train=train.sizes,
        num_test=test.sizes,
        classes=[None] * population.num_clients if train.draw is not None else classes_of(train),
    )


def classes_of(split: Split) -> list[str]:
    """The classes that each client has, as words."""
    labels = split.labels().astype(np.int64)
    many = labels.max(initial=0) + 1
    owner = np.repeat(np.arange(len(split.sizes)), split.sizes)
    found = np.unique(owner * many + labels)  # every client's, each once
    ends = np.searchsorted(found // many, np.arange(1, len(split.sizes)))
    return [" ".join(map(str, own)) for own in np.split(found % many, ends)]


def similarity_table(table: DenseTable) -> Any:
    """The sampler's memory, with a row for each ordered pair of clients."""
    client, other = np.indices(table.values.shape, dtype=np.int32)
    values = table.values.astype(np.float32)
    return _table(client=client.ravel(), other=other.ravel(), similarity=values.ravel())


def saving(table: Any) -> Callable[[Path], None]:
    """What writes the table to a file."""
    from pyarrow import parquet

    return partial(parquet.write_table, table)


def _table(**columns: Any) -> Any:
    """Numbers that are not known are missing, as they are for pandas, which takes longer."""
    import pyarrow as pa  # slow to import

    return pa.table({name: pa.array(some, from_pandas=True) for name, some in columns.items()})
