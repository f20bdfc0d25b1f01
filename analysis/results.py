"""From MLflow to tidy frames; everything else in this package is a function of them.

`load` gives one row for each trial and round. Columns: what identifies the trial, `TRIAL_COLUMNS`;
its settings by dotted name, `method.name`; `round`; and the metrics by the names under which they
are tracked, `accuracy/test`. A trial that recorded no round has one row without a round, so that
it can be counted.
"""

import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from fedcome_ray import metrics
from fedcome_ray.errors import UserError, did_you_mean, without_passwords
from fedcome_ray.experiments.grid import PROFILES, grid_names
from fedcome_ray.experiments.trial import YOUNGER
from fedcome_ray.tracking.address import check_uri
from fedcome_ray.tracking.store import LOG_EVERY
from fedcome_ray.trials.folder import ROUNDS, read_rounds, verified

TRIAL_COLUMNS = [
    "run_id",
    "experiment_id",
    "grid",
    "profile",
    "trial_key",
    "status",
    "launch",
    "commit",
    "dirty",
    "machine",
    "versions",
    "arithmetic",
]
DESCRIPTIONS = ["setting", "changes"]
"""What `study.select` says about each trial: how it differs from others, and from its profile."""
NEEDED_METRICS = [metrics.ACCURACY, metrics.SECONDS_ROUND, metrics.SECONDS_EVALUATE]
NO_ROWS = pd.DataFrame({"run_id": []})


def connect(uri: str) -> MlflowClient:
    """A client of a store that exists; MLflow itself would silently create an empty one."""
    check_uri(uri)
    file = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:") and not file.is_file():
        raise UserError(
            f"--tracking-uri: there is no store `{file}`; "
            f"run a grid first, for example `python -m fedcome_ray.tune --grid full_participation`"
        )
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except Exception as error:  # noqa: BLE001 - whatever the database driver raises
        reason = (str(error) or repr(error)).strip().splitlines()[0]
        shown = without_passwords(uri)
        raise UserError(f"--tracking-uri: cannot read `{shown}`: {reason}") from None
    return client


def stored_grids(client: MlflowClient) -> dict[str, str]:
    """Experiment ids by grid, of the grids that have a trial."""
    return {
        experiment.name: experiment.experiment_id
        for experiment in client.search_experiments()
        if client.search_runs([experiment.experiment_id], _kind("trial"), max_results=1)
    }


def choose_grids(wanted: str, stored: Iterable[str]) -> list[str]:
    """The grids that a command asks for."""
    names = sorted(stored)
    if not names:
        raise UserError("the store holds no trial; run a grid with `python -m fedcome_ray.tune`")
    if wanted == "all":
        return names
    if wanted in names:
        return [wanted]
    if wanted in grid_names():
        raise UserError(
            f"--grid: `{wanted}` is not in this store; "
            f"run `python -m fedcome_ray.tune --grid {wanted}`, or choose from: {', '.join(names)}"
        )
    raise UserError(f"--grid: there is no grid `{wanted}`; {did_you_mean(wanted, ['all', *names])}")


def load(client: MlflowClient, experiment_id: str) -> pd.DataFrame:
    """All trials of a grid, a row for each round."""
    runs = _search_all(client, experiment_id, "trial")
    # The newest run of a trial counts, should a store have been filled twice. Profiles may share a
    # trial, and each has its own run of it.
    newest = {_identity(run): run for run in reversed(runs)}
    trials = pd.DataFrame([_trial(run) for run in newest.values()])
    rounds = pd.DataFrame(
        [
            {"run_id": run.info.run_id, "round": number, **found}
            for run in newest.values()
            for number, found in _history(client, run).items()
        ]
    )
    # If no trial got as far as a round, there is no column; NaN says the same.
    needed = pd.Index(["run_id", "round", *NEEDED_METRICS])
    rounds = rounds.reindex(columns=rounds.columns.union(needed, sort=False))
    return rounds.merge(trials, how="right", on="run_id")


def load_artifacts(client: MlflowClient, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """A table that trials keep as an artifact, with each row's `run_id`; empty if none has it."""
    tables = []
    for run_id in frame["run_id"].unique():
        with _artifact(client, client.get_run(run_id), name) as path:
            if path is not None:
                table = pd.read_parquet(verified(path.parent, name))
                tables.append(table.assign(run_id=run_id))
    return pd.concat(tables, ignore_index=True) if tables else NO_ROWS


def newest_launch(client: MlflowClient, experiment_id: str) -> Run | None:
    launches = _search_all(client, experiment_id, "launch")
    return launches[0] if launches else None


def choose_profile(frame: pd.DataFrame, wanted: str | None) -> str:
    """The profile asked for, else the largest that has a finished trial."""
    stored = set(frame["profile"])
    if wanted is not None and wanted not in stored:
        grid = frame["grid"].iloc[0]
        raise UserError(f"--profile: grid `{grid}` has none; {did_you_mean(wanted, stored)}")
    finished = set(frame.loc[frame["status"] == "FINISHED", "profile"])
    by_size = [*reversed(PROFILES), *sorted(stored - set(PROFILES))]
    return wanted or next(p for p in by_size if p in (finished or stored))


def _search_all(client: MlflowClient, experiment_id: str, kind: str) -> list[Run]:
    """Newest first."""
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], _kind(kind), page_token=token)
        runs += page
        token = page.token
        if not token:
            return runs


def _kind(kind: str) -> str:
    return f"tags.`fedcome.kind` = '{kind}'"


def _trial(run: Run) -> dict[str, Any]:
    """Its identity and its settings."""
    tags = run.data.tags
    identity = {name: tags.get(f"fedcome.{name}", "") for name in TRIAL_COLUMNS} | {
        "run_id": run.info.run_id,
        "experiment_id": run.info.experiment_id,
        "status": run.info.status,
        "versions": _versions(tags),
        "arithmetic": json.dumps(_prefixed(tags, "fedcome.arithmetic.")),
    }
    return {**identity, **YOUNGER, **{n: parse(text) for n, text in run.data.params.items()}}


def _history(client: MlflowClient, run: Run) -> dict[int, dict[str, float]]:
    """The metrics of each round.

    A finished trial has them in one file; asking MLflow for one metric after the other takes
    minutes for a thousand trials. What is under way may have a file of an earlier launch.
    """
    if run.info.status == "FINISHED":
        with _artifact(client, run, ROUNDS) as path:
            if path is not None:
                return {
                    one.number: {**one.metrics, **one.seconds} for one in read_rounds(path.parent)
                }
        if LOG_EVERY in run.data.tags:
            raise UserError(
                f"the run {run.info.run_id} has no file {ROUNDS}, and MLflow has not all of its "
                f"rounds: --log-every {run.data.tags[LOG_EVERY]}"
            )
    rounds: dict[int, dict[str, float]] = {}
    for name in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, name):
            rounds.setdefault(point.step, {})[name] = point.value
    return rounds


@contextmanager
def _artifact(client: MlflowClient, run: Run, name: str) -> Iterator[Path | None]:
    """A file of a run, None if it has none; one on this machine is read where it is."""
    location = urlsplit(run.info.artifact_uri)
    if location.scheme in {"", "file"}:
        local = Path(unquote(location.path)) / name
        yield local if local.exists() else None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield _download(client, run.info.run_id, name, folder)


def _download(client: MlflowClient, run_id: str, name: str, folder: str) -> Path | None:
    try:
        return Path(client.download_artifacts(run_id, name, folder))
    except (MlflowException, OSError):  # stores differ in how they say that there is none
        return None


def _identity(run: Run) -> tuple[str, str]:
    return run.data.tags["fedcome.profile"], run.data.tags["fedcome.trial_key"]


def _versions(tags: Mapping[str, str]) -> str:
    found = _prefixed(tags, "fedcome.version.")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _prefixed(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The tags under a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): v for n, v in sorted(tags.items()) if n.startswith(prefix)}


def parse(text: str) -> Any:
    """A parameter as the value it was before MLflow made it a string; lists stay text."""
    try:
        value = json.loads(text)
    except ValueError:
        return {"None": None, "True": True, "False": False}.get(text, text)
    return value if isinstance(value, int | float) else text
