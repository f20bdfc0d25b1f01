"""One experiment of an MLflow store: checks of its address, opening it, writing to it.

The history in a trial's folder is the truth; MLflow shows it. One experiment for each grid, one
flat run for each trial of a profile and one for each launch, told apart by the tag `fedcome.kind`.
Runs are found again by profile and trial key, and a round that one has already is not written
twice.
"""

import fcntl
import logging
import os
import shlex
import sqlite3
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

from fedcome_ray import metrics as names
from fedcome_ray.errors import UserError
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round
from fedcome_ray.tracking.titles import group_tags, title
from fedcome_ray.tracking.views import saved_view_tags
from fedcome_ray.trials.folder import SETTINGS, read_result, read_rounds
from fedcome_ray.trials.origin import PLUGIN, read_commands, without_passwords
from fedcome_ray.trials.provenance import provenance

ARTIFACTS = (  # of a trial's folder, see fedcome_ray.trials.folder
    "trial.json",
    "commands.txt",
    "plugin.py",
    "rounds.jsonl",
    "clients.parquet",
    "population.parquet",
    "similarity.parquet",
    "model.safetensors",
    "result.json",
    "trial.log",
)
SQLITE = "sqlite:///"
NOTE = "mlflow.note.content"  # the tag that MLflow's page shows as a run's description
HIGH_WATER = names.SECONDS_ROUND  # the metric that every round has


def check_uri(uri: str) -> None:
    """Refuse a tracking server that does not answer, before anything long starts."""
    if uri.startswith(("http://", "https://")):
        _check_server(uri)
    elif uri.startswith(SQLITE):
        _check_sqlite(uri)
    elif "://" not in uri:
        raise UserError(
            f"--tracking-uri: `{uri}` is not a URI; allowed are http(s)://HOST:PORT, "
            f"sqlite:///FILE and the other databases that MLflow knows"
        )


def _check_server(uri: str) -> None:
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=10).close()
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"--tracking-uri: no MLflow server answers at `{uri}`: {reason}") from None


def _check_sqlite(uri: str) -> None:
    file = _sqlite_file(uri)
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
    try:
        with tempfile.TemporaryDirectory() as scratch:
            is_new = uri.startswith(SQLITE) and not _sqlite_file(uri).exists()
            if is_new:
                _check_can_be_made(_sqlite_file(uri))
            _connect(f"{SQLITE}{scratch}/mlflow.db" if is_new else uri).search_experiments()
    except Exception as error:
        raise UserError(f"--tracking-uri: cannot use `{uri}`: {root_cause(error)}") from error


def _check_can_be_made(file: Path) -> None:
    """Raise OSError where no file could be written."""
    folder = next(some for some in file.parents if some.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


def root_cause(error: BaseException) -> str:
    """One line; what MLflow and its database layer say around the cause fills a screen."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or repr(error)).strip().splitlines()[0]


def open_store(uri: str, experiment: str, artifacts: Path, tags: Mapping[str, str]) -> "Store":
    """The experiment, made if need be; `tags` are those of every run: `profile`, `command`...

    A server decides by itself where artifacts are kept; for other stores it is `artifacts`.
    """
    with _alone_in(uri):
        client = _connect(uri)
        experiment_id = _find_experiment(client, experiment)
        if experiment_id is None:
            location = None if uri.startswith("http") else artifacts.as_uri()
            experiment_id = _create_experiment(client, experiment, location)
    return Store(client, experiment_id, tags, uri)


def fetch_trial(uri: str, run_id: str, folder: Path) -> None:
    """Copy what a trial can be repeated from, its settings and its plugin, out of its run."""
    check_uri(uri)
    if uri.startswith(SQLITE) and not _sqlite_file(uri).exists():
        raise UserError(f"--from: there is no store `{uri}`; name it with --tracking-uri")
    client = _connect(uri)
    try:
        files = {file.path for file in client.list_artifacts(run_id)}
    except Exception as error:
        raise UserError(f"--from: no run `{run_id}` in `{uri}`: {root_cause(error)}") from error
    if SETTINGS not in files:
        raise UserError(f"--from: the run `{run_id}` has no {SETTINGS}: not the run of a trial")
    folder.mkdir(parents=True, exist_ok=True)
    for name in files & {SETTINGS, PLUGIN}:
        client.download_artifacts(run_id, name, str(folder))


def _connect(uri: str) -> Any:
    """MLflow, quietly, with the tables of its store made if need be."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logging.getLogger("alembic").setLevel(logging.ERROR)
    from mlflow import MlflowClient  # seconds to import, so not before it is needed

    return MlflowClient(uri)


@contextmanager
def _alone_in(uri: str) -> Iterator[None]:
    """MLflow makes its tables when a store is first opened; two processes at once ruin them."""
    if not uri.startswith(SQLITE):
        yield
        return
    lock = Path(f"{_sqlite_file(uri)}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sqlite_file(uri: str) -> Path:
    return Path(uri.removeprefix(SQLITE))


def _find_experiment(client: Any, name: str) -> str | None:
    found = client.get_experiment_by_name(name)
    if found is None:
        return None
    if found.lifecycle_stage == "deleted":  # on MLflow's page; new results bring it back
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _create_experiment(client: Any, name: str, location: str | None) -> str:
    # Without this kind, MLflow's page opens on its side for language models.
    tags = {"mlflow.experimentKind": "custom_model_development", **saved_view_tags()}
    return str(client.create_experiment(name, location, tags))


@dataclass
class _OpenRun:
    """The run of a trial under way."""

    id: str
    next_round: int  # the first that it does not have


class Store:
    """An opened experiment. Every operation may raise whatever the store's driver raises.

    Writes go in batches: a single metric costs SQLite as much as a hundred.
    """

    def __init__(self, client: Any, experiment_id: str, tags: Mapping[str, str], uri: str) -> None:
        self.experiment_id = experiment_id
        self._client = client
        self._uri = uri
        self._tags = _prefixed(tags)
        self._runs: dict[str, _OpenRun] = {}  # by trial key

    def begin(self, trial: Trial) -> None:
        """Make sure that the trial has a run, marked as running."""
        self._run(trial, provenance)

    def log_rounds(self, trial: Trial, rounds: Iterable[Round]) -> None:
        """Write those rounds that the trial's run does not have; they come in order."""
        from mlflow.entities import Metric

        run = self._run(trial, provenance)
        fresh = [one for one in rounds if one.number >= run.next_round]
        metrics = [
            Metric(name, value, round(one.time * 1000), one.number)
            for one in fresh
            for name, value in {**one.metrics, **one.seconds}.items()
        ]
        if metrics:
            self._client.log_batch(run.id, metrics=metrics)
            run.next_round = fresh[-1].number + 1

    def end(self, trial: Trial, status: str, folder: Path) -> None:
        """`status` is MLflow's: FINISHED, FAILED or KILLED."""
        run_id = self._run(trial, provenance).id
        self._tag_arithmetic(run_id, folder)
        for name in ARTIFACTS:
            if (folder / name).exists():
                self._client.log_artifact(run_id, str(folder / name))
        self._client.set_terminated(run_id, status)

    def mirror(self, trial: Trial, folder: Path) -> None:
        """Copy a trial that finished in an earlier launch, unless it is here."""
        found = self._find_run(trial)
        if found is None or found.info.status != "FINISHED":
            self._run(trial, lambda: _producer(folder))
            self.log_rounds(trial, read_rounds(folder))
            self.end(trial, "FINISHED", folder)

    def log_launch(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """A run of its own, complete; `texts` are the contents of its files by name."""
        tags = {**self._tags, **_prefixed(provenance()), "fedcome.kind": "launch"}
        name = f"launch {self._tags['fedcome.launch']}"
        run_id = self._client.create_run(self.experiment_id, tags=tags, run_name=name).info.run_id
        self._log_params(run_id, params)
        for metric, value in metrics.items():
            self._client.log_metric(run_id, metric, value)
        for file, text in texts.items():
            self._client.log_text(run_id, text, file)
        self._client.set_terminated(run_id)

    def _run(self, trial: Trial, producer: Callable[[], Mapping[str, str]]) -> _OpenRun:
        """Found or made; `producer` says what computes a trial that has no run yet."""
        if trial.key not in self._runs:
            run = self._find_run(trial) or self._create_run(trial, producer())
            history = self._client.get_metric_history(run.info.run_id, HIGH_WATER)
            self._client.update_run(run.info.run_id, status="RUNNING")
            next_round = max((point.step + 1 for point in history), default=0)
            self._runs[trial.key] = _OpenRun(run.info.run_id, next_round)
        return self._runs[trial.key]

    def _find_run(self, trial: Trial) -> Any:
        wanted = {"trial_key": trial.key, "profile": self._tags["fedcome.profile"]}
        condition = " and ".join(f"tags.`fedcome.{tag}` = '{own}'" for tag, own in wanted.items())
        runs = self._client.search_runs([self.experiment_id], condition, max_results=1)
        return runs[0] if runs else None

    def _create_run(self, trial: Trial, producer: Mapping[str, str]) -> Any:
        tags = {
            **self._tags,
            **_prefixed(producer),
            "fedcome.kind": "trial",
            "fedcome.trial_key": trial.key,
            **group_tags(trial),
            "mlflow.source.name": "fedcome_ray",
            "mlflow.source.git.commit": producer["commit"],
        }
        run = self._client.create_run(self.experiment_id, tags=tags, run_name=title(trial))
        self._log_params(run.info.run_id, flatten(trial.model_dump(mode="json")))
        note = description(tags["fedcome.command"], run.info.run_id, self._uri)
        self._client.set_tag(run.info.run_id, NOTE, note)
        return run

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        batch = [Param(name, str(value)) for name, value in params.items()]
        self._client.log_batch(run_id, params=batch)

    def _tag_arithmetic(self, run_id: str, folder: Path) -> None:
        """What a finished trial was computed with; several values where its processes differ."""
        from mlflow.entities import RunTag

        result = read_result(folder)
        records = result.computed_with if result is not None else []
        parts = dict.fromkeys(part for record in records for part in record)
        tags = [
            RunTag(f"fedcome.arithmetic.{part}", " | ".join({r[part]: None for r in records}))
            for part in parts
        ]
        if tags:
            self._client.log_batch(run_id, tags=tags)


def _producer(folder: Path) -> Mapping[str, str]:
    """What computed the result in a trial's folder, and the command that began it."""
    result, commands = read_result(folder), read_commands(folder)
    produced = provenance() if result is None else result.provenance
    return {**produced, "command": commands[0] if commands else "unknown"}


def description(command: str, run_id: str, uri: str) -> str:
    """What MLflow's page shows of a trial first: what made it, and how to make it again."""
    again = f"python -m fedcome_ray.run --from {run_id} --output again"
    store = f"--tracking-uri {shlex.quote(without_passwords(uri))}"
    says = "Made by the first, repeated by the second:"  # short, or the page folds it
    return f"{says}\n\n    {command}\n    {again} \\\n        {store}"


def _prefixed(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"fedcome.{name}": value for name, value in tags.items()}
