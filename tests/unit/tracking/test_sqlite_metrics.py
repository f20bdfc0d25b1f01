"""What is written to MLflow's tables is what MLflow would have written."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.errors import FedcomeError
from fedcome_ray.tracking import sqlite_metrics
from fedcome_ray.tracking.client import Client
from fedcome_ray.tracking.sqlite_metrics import Point

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

POINTS = [
    Point(name, value + step, 1_700_000_000_000 + step, step)
    for step in range(5)
    for name, value in {"accuracy/test": 0.5, "loss/test": -1e-3, "seconds/round": 3}.items()
]
ODD = [
    Point("odd", math.nan, 1_700_000_000_000, 0),
    Point("odd", math.inf, 1_700_000_000_001, 1),
    Point("odd", -math.inf, 1_700_000_000_001, 1),
    Point("other", -math.inf, 1_700_000_000_001, 1),
    Point("last is nan", 1.0, 1_700_000_000_001, 1),
    Point("last is nan", math.nan, 1_700_000_000_001, 2),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "mlflow.db"


@pytest.fixture(scope="module")
def client(file: Path) -> Any:
    mlflow = Client(f"sqlite:///{file}")._mlflow
    mlflow.create_experiment("some")
    return mlflow


def rows_of(file: Path, run_id: str) -> list[list[tuple[Any, ...]]]:
    columns = "key, value, timestamp, step, is_nan"
    with closing(sqlite3.connect(file)) as store:
        return [
            sorted(store.execute(f"SELECT {columns} FROM {table} WHERE run_uuid = ?", (run_id,)))
            for table in ("metrics", "latest_metrics")
        ]


@pytest.mark.parametrize(
    "batches",
    [
        [POINTS],
        [POINTS[:7], POINTS[7:]],
        [POINTS[7:], POINTS[:7]],  # an older one must not replace the newest
        [POINTS, POINTS],  # as after a failure
        [ODD],
        [ODD[:1], ODD[1:]],
        [POINTS[::-1]],
    ],
)
def test_the_tables_are_those_that_mlflow_writes(
    batches: list[list[Point]], client: Any, file: Path
) -> None:
    from mlflow.entities import Metric

    experiment = client.get_experiment_by_name("some").experiment_id
    ours, theirs = (client.create_run(experiment).info.run_id for _ in range(2))
    for points in batches:
        sqlite_metrics.write(file, ours, points)
        client.log_batch(theirs, metrics=[Metric(*point) for point in points])
    assert rows_of(file, ours) == rows_of(file, theirs)
    found = client.get_run(ours).data.metrics
    assert found.keys() == {point.metric for points in batches for point in points}


def test_a_run_that_was_deleted_is_refused(client: Any, file: Path) -> None:
    run_id = client.create_run(client.get_experiment_by_name("some").experiment_id).info.run_id
    client.delete_run(run_id)
    with pytest.raises(FedcomeError, match="was deleted"):
        Client(f"sqlite:///{file}").log(run_id, POINTS)
    assert rows_of(file, run_id) == [[], []]
