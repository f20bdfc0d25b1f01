"""Metrics of a run, written to the tables of MLflow's SQLite file as they are.

MLflow makes an object of every number, which takes several times as long: for many small trials,
longer than the trials themselves. What is written is the same.
"""

import math
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fedcome_ray.errors import FedcomeError

LARGEST = sys.float_info.max
"""What MLflow writes for infinity."""
PATIENCE_SECONDS = 60.0
"""For others that write to the file."""
_IS_THERE = "SELECT 1 FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"
_COLUMNS = "run_uuid, key, value, timestamp, step, is_nan"
_INSERT = f"INSERT OR IGNORE INTO metrics ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_REPLACE = f"""
INSERT INTO latest_metrics ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET
    value = excluded.value, timestamp = excluded.timestamp,
    step = excluded.step, is_nan = excluded.is_nan
WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)
"""


Row = tuple[str, str, float, int, int, bool]


class Point(NamedTuple):
    """A value of a metric."""

    metric: str
    value: float
    time: int  # milliseconds since 1970
    step: int


def write(file: Path, run_id: str, points: Sequence[Point]) -> None:
    """Add these to the run, all or none; those that it has stay."""
    rows = sorted((_row(run_id, point) for point in points), key=_age)
    newest = {row[1]: row for row in rows}
    address = f"{file.absolute().as_uri()}?mode=rw"  # not to make an empty file of one that is gone
    with closing(sqlite3.connect(address, PATIENCE_SECONDS, uri=True)) as store, store:
        if store.execute(_IS_THERE, (run_id,)).fetchone() is None:
            raise FedcomeError(f"the run {run_id} was deleted")
        store.executemany(_INSERT, rows)
        store.executemany(_REPLACE, newest.values())


def _age(row: Row) -> tuple[int, int, float]:
    """By which MLflow says what is the newest."""
    _, _, value, timestamp, step, _ = row
    return step, timestamp, value


def _row(run_id: str, point: Point) -> Row:
    is_nan = math.isnan(point.value)
    value = 0.0 if is_nan else min(max(float(point.value), -LARGEST), LARGEST)
    return run_id, point.metric, value, point.time, point.step, is_nan
