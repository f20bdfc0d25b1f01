"""What we ask of MLflow, in plain data.

So it can be asked in another process (`fedcome_ray.tracking.apart`), and nothing of MLflow is
imported where its answers are read.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedcome_ray.importing import large_modules
from fedcome_ray.tracking.address import SERVERS

UPLOADS = 4
"""Files that are sent to a server at a time."""


class Run(NamedTuple):
    """What we look at of a run."""

    id: str
    status: str
    is_there: bool  # else it was deleted on MLflow's page
    has_metrics: bool
    has_params: bool
    tags: dict[str, str]


Point = tuple[str, float, int, int]
"""(metric, value, milliseconds since 1970, step): thousands a second go to another process, and a
record of its own takes ten times as long to be sent as a plain tuple."""


class Experiment(NamedTuple):
    """What we look at of an experiment."""

    id: str
    tags: dict[str, str]


class Client:
    """A store; everything but `__init__` may raise whatever the store's driver raises."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._locations: dict[str, str] = {}  # of the files of runs that were seen, by run

    def close(self) -> None:
        """Nothing is held here."""

    def make_tables(self, uri: str) -> None:
        """Of another store, which MLflow does when it first connects to one."""
        _connect(uri)

    def experiment_named(self, name: str) -> Experiment | None:
        """One that was deleted on MLflow's page comes back."""
        found = self._mlflow.get_experiment_by_name(name)
        if found is None:
            return None
        if found.lifecycle_stage == "deleted":
            self._mlflow.restore_experiment(found.experiment_id)
        return Experiment(str(found.experiment_id), dict(found.tags))

    def create_experiment(
        self, name: str, location: str | None, tags: Mapping[str, str]
    ) -> Experiment:
        created = self._mlflow.create_experiment(name, location, dict(tags))
        return Experiment(str(created), dict(tags))

    def eldest_run(self, experiment_id: str, tags: Mapping[str, str]) -> Run | None:
        """Of those with these tags, the one that began first."""
        condition = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in tags.items())
        order = ["attributes.start_time ASC"]
        found = self._mlflow.search_runs([experiment_id], condition, max_results=1, order_by=order)
        return self._seen(found[0]) if found else None

    def run(self, run_id: str) -> Run:
        return self._seen(self._mlflow.get_run(run_id))

    def create_run(self, experiment_id: str, name: str, tags: Mapping[str, str]) -> Run:
        return self._seen(self._mlflow.create_run(experiment_id, tags=dict(tags), run_name=name))

    def delete_run(self, run_id: str) -> None:
        self._mlflow.delete_run(run_id)

    def mark_running(self, run_id: str) -> None:
        self._mlflow.update_run(run_id, status="RUNNING")

    def end_run(self, run_id: str, status: str) -> None:
        self._mlflow.set_terminated(run_id, status)
        self._locations.pop(run_id, None)

    def log(
        self,
        run_id: str,
        points: Sequence[Point] = (),
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """All at once: a single metric costs a database as much as a hundred."""
        from mlflow.entities import Metric, Param, RunTag

        self._mlflow.log_batch(
            run_id,
            metrics=[Metric(*point) for point in points],
            params=[Param(name, str(value)) for name, value in (params or {}).items()],
            tags=[RunTag(name, value) for name, value in (tags or {}).items()],
        )

    def last_step(self, run_id: str, metric: str) -> int:
        """The last step at which a run has a metric, -1 if it has none."""
        history = self._mlflow.get_metric_history(run_id, metric)
        return max((point.step for point in history), default=-1)

    def log_files(self, run_id: str, paths: Sequence[str]) -> None:
        """To a server beside each other: it takes its time for each.

        MLflow would ask for the whole run, with all of its metrics, to know where its files go.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if run_id not in self._locations:
            self._seen(self._mlflow.get_run(run_id))
        repository: Any = get_artifact_repository(self._locations[run_id], self._uri)

        def log(path: str) -> None:
            if Path(path).is_dir():
                repository.log_artifacts(path, Path(path).name)
            else:
                repository.log_artifact(path)

        if self._uri.startswith(SERVERS):
            with ThreadPoolExecutor(UPLOADS) as threads:
                list(threads.map(log, paths))
            return
        for path in paths:
            log(path)

    def log_text(self, run_id: str, text: str, name: str) -> None:
        self._mlflow.log_text(run_id, text, name)

    def files(self, run_id: str) -> set[str]:
        return {file.path for file in self._mlflow.list_artifacts(run_id)}

    def download(self, run_id: str, name: str, folder: str) -> None:
        self._mlflow.download_artifacts(run_id, name, folder)

    def look(self) -> None:
        """Ask for anything."""
        self._mlflow.search_experiments()

    def _seen(self, found: Any) -> Run:
        info, data = found.info, found.data
        self._locations[info.run_id] = info.artifact_uri
        is_there = info.lifecycle_stage == "active"
        has = bool(data.metrics), bool(data.params)
        return Run(info.run_id, info.status, is_there, *has, dict(data.tags))

    @cached_property
    def _mlflow(self) -> Any:
        return _connect(self._uri)


def root_cause(error: BaseException) -> str:
    """One line; what MLflow and its database layer say around the cause fills a screen."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or repr(error)).strip().splitlines()[0]


def _connect(uri: str) -> Any:
    """MLflow, quietly, with the tables of its store made if need be."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logging.getLogger("alembic").setLevel(logging.ERROR)
    # What it says of an error on a screen, the tracker says in a line.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    with large_modules():
        from mlflow import MlflowClient  # seconds to import, so not before it is needed

    return MlflowClient(uri)
