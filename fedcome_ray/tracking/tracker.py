"""The mirror of trials in MLflow.

The history in a trial's folder is the truth; MLflow shows it. One experiment for each grid, one
flat run for each trial of a profile and one for each launch, told apart by the tag `fedcome.kind`.
One thread of the driver writes, in batches: a single metric costs SQLite as much as a hundred. Runs
are found again by profile and trial key, and a round that one has already is not written twice.
"""

import fcntl
import logging
import os
import queue
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError

from fedcome_ray.errors import UserError
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.tracking.views import saved_view_tags
from fedcome_ray.trials.provenance import provenance
from fedcome_ray.trials.run import Line, read_lines, read_result

FLUSH_SECONDS = 4.0
REST_SECONDS = 60.0
ARTIFACTS = (
    "trial.json",
    "rounds.jsonl",
    "clients.parquet",
    "population.parquet",
    "similarity.parquet",
    "model.safetensors",
    "result.json",
    "trial.log",
)
HIGH_WATER = "seconds/round"  # the metric that every round has


def check_uri(uri: str) -> None:
    """Refuse a tracking server that does not answer, before anything long starts."""
    if uri.startswith(("http://", "https://")):
        try:
            urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10).close()
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UserError(
                f"--tracking-uri: no MLflow server answers at `{uri}`: {reason}"
            ) from None
    elif uri.startswith("sqlite:///"):
        _check_sqlite(uri, Path(uri.removeprefix("sqlite:///")))
    elif "://" not in uri:
        raise UserError(
            f"--tracking-uri: `{uri}` is not a URI; allowed are http(s)://HOST:PORT, "
            f"sqlite:///FILE and the other databases that MLflow knows"
        )


def _check_sqlite(uri: str, file: Path) -> None:
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA schema_version")  # reads the header
    except sqlite3.Error as error:
        raise UserError(
            f"--tracking-uri: cannot use `{uri}`: {error}; move that file away: MLflow only "
            f"mirrors the folders of trials, and launching a grid again writes it anew"
        ) from None


def try_open(uri: str) -> None:
    """Raise UserError unless MLflow can use the store; one that is not there yet is not made."""
    file = Path(uri.removeprefix("sqlite:///"))
    try:
        with tempfile.TemporaryDirectory() as scratch:
            is_new = uri.startswith("sqlite:///") and not file.exists()
            _client(f"sqlite:///{scratch}/mlflow.db" if is_new else uri).search_experiments()
    except Exception as error:
        raise UserError(f"--tracking-uri: cannot use `{uri}`: {_root_cause(error)}") from error


def _client(uri: str) -> Any:
    """MLflow, quietly, with the tables of its store made if need be."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    logging.getLogger("alembic").setLevel(logging.ERROR)
    from mlflow import MlflowClient  # seconds to import, so not before it is needed

    return MlflowClient(uri)


@contextmanager
def _alone_in(uri: str) -> Iterator[None]:
    """MLflow makes its tables when a store is first opened; two processes at once ruin them."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    lock = Path(f"{uri.removeprefix('sqlite:///')}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Task(NamedTuple):
    """Work for the tracker's thread."""

    do: Callable[[], object]
    needs_store: bool = True


class Tracker:
    """Writes what it is told to MLflow, in the background and in order."""

    def __init__(self, uri: str, experiment: str, artifacts: Path, tags: Mapping[str, str]) -> None:
        self.uri = uri
        self.experiment = experiment
        self.experiment_id = ""
        self.problem: str | None = None
        self._artifacts = artifacts
        self._tags = {f"fedcome.{name}": value for name, value in tags.items()}
        self._runs: dict[str, str] = {}  # trial key -> run id
        self._next_round: dict[str, int] = {}  # trial key -> the first round not yet written
        self._buffer: dict[Trial, list[Line]] = {}
        self._resting_until = 0.0
        self._ready = threading.Event()
        self._work: queue.Queue[_Task | None] = queue.Queue()
        self._work.put(_Task(self._open))
        self._thread = threading.Thread(target=self._main, name="tracking", daemon=True)
        self._thread.start()

    def check_open(self) -> None:
        """Block until the experiment is there; refuse a store that cannot be opened."""
        self._ready.wait()
        if not self.experiment_id:
            raise UserError(f"--tracking-uri: cannot use `{self.uri}`: {self.problem}")

    @property
    def complaint(self) -> str | None:
        """What went wrong with the store, for people."""
        if self.problem is None:
            return None
        return (
            f"MLflow: {self.problem}; nothing is lost, the same command mirrors the results again"
        )

    def trial_started(self, trial: Trial) -> None:
        self._work.put(_Task(lambda: self._run_id(trial)))

    def trial_advanced(self, trial: Trial, lines: Iterable[Line]) -> None:
        news = list(lines)
        keep = _Task(lambda: self._buffer.setdefault(trial, []).extend(news), needs_store=False)
        self._work.put(keep)

    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None:
        """`status` is MLflow's: FINISHED, FAILED or KILLED."""
        self._work.put(_Task(lambda: self._end(trial, status, folder)))

    def mirror(self, trial: Trial, folder: Path) -> None:
        """Make sure that a trial finished in an earlier launch is in this store too."""
        self._work.put(_Task(lambda: self._mirror(trial, folder)))

    def launch_ended(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        self._work.put(_Task(lambda: self._log_launch(params, metrics, texts)))

    def close(self) -> None:
        """Write what is left."""
        self._work.put(_Task(self._flush))
        self._work.put(None)
        self._thread.join()

    def _main(self) -> None:
        last_flush = time.monotonic()
        while True:
            try:
                task = self._work.get(timeout=FLUSH_SECONDS)
            except queue.Empty:
                task = _Task(self._flush)
            if task is None:
                return
            if task.needs_store:
                self._attempt(task.do)
            else:
                task.do()
            if time.monotonic() - last_flush > FLUSH_SECONDS:
                self._attempt(self._flush)
                last_flush = time.monotonic()

    def _attempt(self, action: Callable[[], object]) -> None:
        """A store that fails must not stop the trials, whose folders lose nothing.

        It is left alone for a while then: a server that is gone takes its time to say so, and a
        launch would wait for that at the end of every trial.
        """
        if self._ready.is_set() and not self.experiment_id:
            return  # there is no store; said at the start
        if time.monotonic() < self._resting_until:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - shown to the user by whoever owns the tracker
            self.problem = _root_cause(error)
            self._resting_until = time.monotonic() + REST_SECONDS
        self._ready.set()

    def _open(self) -> None:
        with _alone_in(self.uri):
            self._client = _client(self.uri)
            self.experiment_id = self._find_experiment() or self._create_experiment()
        self._ready.set()

    def _find_experiment(self) -> str | None:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            return None
        if found.lifecycle_stage == "deleted":  # on MLflow's page; new results bring it back
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _create_experiment(self) -> str:
        location = None if self.uri.startswith("http") else self._artifacts.as_uri()
        # Without this kind, MLflow's page opens on its side for language models.
        tags = {"mlflow.experimentKind": "custom_model_development", **saved_view_tags()}
        return str(self._client.create_experiment(self.experiment, location, tags))

    def _run_id(self, trial: Trial, folder: Path | None = None) -> str:
        if trial.key not in self._runs:
            run = self._find(trial.key) or self._create_run(trial, folder)
            history = self._client.get_metric_history(run.info.run_id, HIGH_WATER)
            self._next_round[trial.key] = max((m.step + 1 for m in history), default=0)
            self._client.update_run(run.info.run_id, status="RUNNING")
            self._runs[trial.key] = run.info.run_id
        return self._runs[trial.key]

    def _create_run(self, trial: Trial, folder: Path | None) -> Any:
        result = read_result(folder) if folder is not None else None
        producer = result["provenance"] if result is not None else provenance()
        tags = {
            **self._tags,
            **{f"fedcome.{name}": value for name, value in producer.items()},
            "fedcome.kind": "trial",
            "fedcome.trial_key": trial.key,
            "mlflow.source.name": "fedcome_ray",
            "mlflow.source.git.commit": producer["commit"],
        }
        run = self._client.create_run(self.experiment_id, tags=tags, run_name=trial.name)
        self._log_params(run.info.run_id, flatten(trial.model_dump(mode="json")))
        return run

    def _find(self, key: str) -> Any:
        profile = self._tags["fedcome.profile"]
        condition = f"tags.`fedcome.trial_key` = '{key}' and tags.`fedcome.profile` = '{profile}'"
        runs = self._client.search_runs([self.experiment_id], condition, max_results=1)
        return runs[0] if runs else None

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        batch = [Param(name, str(value)) for name, value in params.items()]
        self._client.log_batch(run_id, params=batch)

    def _flush(self) -> None:
        from mlflow.entities import Metric

        for trial, lines in self._buffer.items():
            run_id = self._run_id(trial)
            fresh = [line for line in lines if line["round"] >= self._next_round[trial.key]]
            metrics = [
                Metric(name, value, round(line["time"] * 1000), line["round"])
                for line in fresh
                for name, value in {**line["metrics"], **line["seconds"]}.items()
            ]
            if metrics:
                self._client.log_batch(run_id, metrics=metrics)
                self._next_round[trial.key] = fresh[-1]["round"] + 1
            lines.clear()  # not before they are written: a failed attempt is repeated

    def _end(self, trial: Trial, status: str, folder: Path) -> None:
        self._flush()
        run_id = self._run_id(trial)
        self._tag_arithmetic(run_id, folder)
        for name in ARTIFACTS:
            if (folder / name).exists():
                self._client.log_artifact(run_id, str(folder / name))
        self._client.set_terminated(run_id, status)

    def _tag_arithmetic(self, run_id: str, folder: Path) -> None:
        """What a finished trial was computed with; several values where its processes differ."""
        from mlflow.entities import RunTag

        records = (read_result(folder) or {"computed_with": []})["computed_with"]
        names = dict.fromkeys(name for record in records for name in record)
        tags = [
            RunTag(f"fedcome.arithmetic.{name}", " | ".join({r[name]: None for r in records}))
            for name in names
        ]
        if tags:
            self._client.log_batch(run_id, tags=tags)

    def _mirror(self, trial: Trial, folder: Path) -> None:
        found = self._find(trial.key)
        if found is None or found.info.status != "FINISHED":
            self._run_id(trial, folder)
            self._buffer[trial] = read_lines(folder)
            self._end(trial, "FINISHED", folder)

    def _log_launch(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        producer = {f"fedcome.{name}": value for name, value in provenance().items()}
        tags = {**self._tags, **producer, "fedcome.kind": "launch"}
        name = f"launch {self._tags['fedcome.launch']}"
        run_id = self._client.create_run(self.experiment_id, tags=tags, run_name=name).info.run_id
        self._log_params(run_id, params)
        for metric, value in metrics.items():
            self._client.log_metric(run_id, metric, value)
        for file, text in texts.items():
            self._client.log_text(run_id, text, file)
        self._client.set_terminated(run_id)


def _root_cause(error: BaseException) -> str:
    """One line; what MLflow and its database layer say around the cause fills a screen."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or repr(error)).strip().splitlines()[0]
