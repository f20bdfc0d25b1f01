"""MLflow's SQLite file, whose tables are read and written as they are.

MLflow asks its database several times for everything it is asked, and makes an object of every
number: for many small trials that takes longer than the trials themselves. What is written is the
same. The file itself, its tables and experiments are MLflow's, which also sees to it that they are
those of its own version.
"""

import math
import os
import shutil
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fedcome_ray.errors import FedcomeError
from fedcome_ray.tracking.address import SQLITE, sqlite_file
from fedcome_ray.tracking.client import Client, Point, Run

LARGEST = sys.float_info.max
"""What MLflow writes for infinity."""
LONGEST_PARAM, LONGEST_TAG = 6000, 8000  # characters; MLflow cuts what is longer
PATIENCE_SECONDS = 60.0
"""For others that write to the file."""
_CREATE = """
INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,
    start_time, source_version, lifecycle_stage, artifact_uri, experiment_id)
SELECT :id, :name, 'UNKNOWN', '', '', 'unknown', 'RUNNING', :now, '', 'active',
    rtrim(artifact_location, '/') || '/' || :id || '/artifacts', experiment_id
FROM experiments WHERE experiment_id = :experiment AND lifecycle_stage = 'active'
"""
_FIND = """
SELECT run_uuid, status, lifecycle_stage = 'active',
    EXISTS (SELECT 1 FROM latest_metrics WHERE latest_metrics.run_uuid = runs.run_uuid),
    EXISTS (SELECT 1 FROM params WHERE params.run_uuid = runs.run_uuid)
FROM runs WHERE
"""
_HAS_TAG = (
    "EXISTS (SELECT 1 FROM tags WHERE tags.run_uuid = runs.run_uuid AND key = ? AND value = ?)"
)
_TAGS = "SELECT key, value FROM tags WHERE run_uuid = ?"
_IS_THERE = "SELECT 1 FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"
_ADD_PARAM = "INSERT OR IGNORE INTO params (run_uuid, key, value) VALUES (?, ?, ?)"
_SET_TAG = """
INSERT INTO tags (run_uuid, key, value) VALUES (?, ?, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value
"""
_COLUMNS = "run_uuid, key, value, timestamp, step, is_nan"
_ADD_POINT = f"INSERT OR IGNORE INTO metrics ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_SET_LATEST = f"""
INSERT INTO latest_metrics ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key, run_uuid) DO UPDATE SET
    value = excluded.value, timestamp = excluded.timestamp,
    step = excluded.step, is_nan = excluded.is_nan
WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)
"""
Row = tuple[str, str, float, int, int, bool]
_AGE = itemgetter(4, 3, 2)
"""Step, time and value of a row, by which MLflow says what is the newest."""


def client_of(uri: str) -> Client:
    """The quickest for a store."""
    return SqliteClient(uri) if uri.startswith(SQLITE) else Client(uri)


class SqliteClient(Client):
    """A store that is a file, made already where runs are asked for."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._file = sqlite_file(uri)
        self._store: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # the file that is open, as the system knows it

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = None

    def eldest_run(self, experiment_id: str, tags: Mapping[str, str]) -> Run | None:
        conditions = " AND ".join([_HAS_TAG] * len(tags))
        is_of = "experiment_id = ? AND lifecycle_stage = 'active'"
        where = f"{is_of} AND {conditions} ORDER BY start_time, run_uuid LIMIT 1"
        return self._find(where, experiment_id, *(part for tag in tags.items() for part in tag))

    def run(self, run_id: str) -> Run:
        found = self._find("run_uuid = ?", run_id)
        if found is None:
            raise _not_there(run_id)
        return found

    def create_run(self, experiment_id: str, name: str, tags: Mapping[str, str]) -> Run:
        run_id, tags = uuid.uuid4().hex, {**tags, "mlflow.runName": name}
        facts = {"id": run_id, "name": name, "now": _now(), "experiment": experiment_id}
        with self._writing() as store:
            if store.execute(_CREATE, facts).rowcount != 1:
                raise FedcomeError(f"the experiment {experiment_id} was deleted")
            store.executemany(_SET_TAG, _tag_rows(run_id, tags))
        return Run(run_id, "RUNNING", True, False, False, tags)

    def mark_running(self, run_id: str) -> None:
        self._change(run_id, "status = ?", "RUNNING")

    def end_run(self, run_id: str, status: str) -> None:
        self._change(run_id, "status = ?, end_time = ?", status, _now())

    def log(
        self,
        run_id: str,
        points: Sequence[Point] = (),
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """All or nothing; points and params that the run has stay."""
        rows = sorted([_row(run_id, *point) for point in points], key=_AGE)
        latest = {row[1]: row for row in rows}
        given = (
            (run_id, name, str(value)[:LONGEST_PARAM]) for name, value in (params or {}).items()
        )
        with self._writing() as store:
            if store.execute(_IS_THERE, (run_id,)).fetchone() is None:
                raise FedcomeError(f"the run {run_id} was deleted")
            store.executemany(_ADD_PARAM, given)
            store.executemany(_SET_TAG, _tag_rows(run_id, tags or {}))
            store.executemany(_ADD_POINT, rows)
            store.executemany(_SET_LATEST, latest.values())

    def last_step(self, run_id: str, metric: str) -> int:
        question = "SELECT max(step) FROM metrics WHERE run_uuid = ? AND key = ?"
        (last,) = self._connected().execute(question, (run_id, metric)).fetchone()
        return -1 if last is None else int(last)

    def log_files(self, run_id: str, paths: Sequence[str]) -> None:
        question = "SELECT artifact_uri FROM runs WHERE run_uuid = ?"
        found = self._connected().execute(question, (run_id,)).fetchone()
        if found is None:
            raise _not_there(run_id)
        address = urlsplit(found[0])
        if address.scheme != "file":
            super().log_files(run_id, paths)
            return
        folder = Path(unquote(address.path))
        folder.mkdir(parents=True, exist_ok=True)
        for path in map(Path, paths):
            if path.is_dir():
                shutil.copytree(path, folder / path.name, dirs_exist_ok=True)
            else:
                _copy(path, folder)

    def _find(self, where: str, *given: str) -> Run | None:
        store = self._connected()
        found = store.execute(_FIND + where, given).fetchone()
        if found is None:
            return None
        run_id, status, is_there, has_metrics, has_params = found
        has = bool(has_metrics), bool(has_params)
        return Run(run_id, status, bool(is_there), *has, dict(store.execute(_TAGS, (run_id,))))

    def _change(self, run_id: str, what: str, *values: Any) -> None:
        with self._writing() as store:
            is_there = "run_uuid = ? AND lifecycle_stage = 'active'"
            changed = store.execute(f"UPDATE runs SET {what} WHERE {is_there}", (*values, run_id))
            if changed.rowcount != 1:
                raise FedcomeError(f"the run {run_id} was deleted")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which none that writes at the same time can be in the way of."""
        store = self._connected()
        store.execute("BEGIN IMMEDIATE")
        with store:
            yield store

    def _connected(self) -> sqlite3.Connection:
        """Opened again if it is another file: what is written to one that is gone is lost."""
        state = os.stat(self._file)  # noqa: PTH116 - of a path, and quick
        if self._store is None or self._opened != (state.st_dev, state.st_ino):
            self.close()
            address = f"{self._file.absolute().as_uri()}?mode=rw"  # not to make an empty file
            self._store = sqlite3.connect(
                address, PATIENCE_SECONDS, isolation_level=None, check_same_thread=False, uri=True
            )
            self._opened = state.st_dev, state.st_ino
        return self._store


def _copy(file: Path, folder: Path) -> None:
    """Whole or not at all: the run may have an older one."""
    new = folder / f".{file.name}-{uuid.uuid4().hex}"
    try:
        shutil.copy2(file, new)
        new.replace(folder / file.name)
    finally:
        new.unlink(missing_ok=True)


def _not_there(run_id: str) -> FedcomeError:
    return FedcomeError(f"there is no run {run_id}")


def _now() -> int:
    return round(time.time() * 1000)


def _tag_rows(run_id: str, tags: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    return ((run_id, name, value[:LONGEST_TAG]) for name, value in tags.items())


def _row(run_id: str, metric: str, value: float, timestamp: int, step: int) -> Row:
    if math.isfinite(value):
        return run_id, metric, float(value), timestamp, step, False
    if math.isnan(value):
        return run_id, metric, 0.0, timestamp, step, True
    return run_id, metric, math.copysign(LARGEST, value), timestamp, step, False
