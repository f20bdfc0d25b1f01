"""Trials made by hand, with accuracies whose means and deviations are round numbers."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from analysis.results import TRIAL_COLUMNS

USUAL: dict[str, Any] = {
    "data.dataset": "cifar10",
    "data.partition.classes": 2,
    "data.num_clients": 4,
    "data.test_split": "natural",
    "sampler.name": "random",
    "participation": None,
    "method.server_lr": 1.0,
    "rounds": 3,
    "eval_every": 1,
}
IDENTITY = {
    "experiment_id": "1",
    "grid": "full_participation",
    "profile": "paper",
    "status": "FINISHED",
    "launch": "20260101-000000",
    "commit": "a" * 40,
    "dirty": "false",
    "machine": "",
    "versions": "torch 2",
    "arithmetic": "{}",
}

UNNAMED_METRIC = "server/momentum_norm"  # as a user's method may add


def trial(method: str, seed: int, *accuracies: float, **changes: Any) -> pd.DataFrame:
    """A trial with one evaluated round for each accuracy, given in %; `a__b` stands for `a.b`."""
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    settings = {"method.name": method, "seed": seed, **USUAL, "rounds": len(accuracies)}
    settings |= {name: value for name, value in changes.items() if name not in IDENTITY}
    identity = IDENTITY | {name: value for name, value in changes.items() if name in IDENTITY}
    key = f"{len(trial.keys):012x}"
    trial.keys.append(key)
    rounds = {
        "round": range(1, len(accuracies) + 1),
        "accuracy/test": [accuracy / 100 for accuracy in accuracies],
        "accuracy/worst_decile": [accuracy / 200 for accuracy in accuracies],
        "loss/test": [2 - accuracy / 100 for accuracy in accuracies],
        "conflicts/opposed": [1.0 for _ in accuracies],
        "seconds/sample": [0.01 for _ in accuracies],
        "seconds/train": [0.2 for _ in accuracies],
        "seconds/aggregate": [0.05 for _ in accuracies],
        "seconds/evaluate": [0.1 for _ in accuracies],
        "seconds/round": [0.36 for _ in accuracies],
    }
    if method == "fedcome":
        rounds |= {
            "conflicts/before": [5.0 for _ in accuracies],
            "conflicts/after": [0.0 for _ in accuracies],
            "server/step_ratio": [1.5 for _ in accuracies],
        }
    frame = pd.DataFrame(rounds) if accuracies else pd.DataFrame({"round": [float("nan")]})
    return frame.assign(**identity, **settings, trial_key=key, run_id=f"run{key}")


trial.keys = []  # type: ignore[attr-defined]


def join(*trials: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(trials, ignore_index=True)


def seeds(method: str, *last: float, **changes: Any) -> pd.DataFrame:
    """A trial for each final accuracy, seeds counted from 0."""
    return join(*(trial(method, s, 20.0, 40.0, value, **changes) for s, value in enumerate(last)))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a store with two grids, made once: a fresh database takes MLflow seconds."""
    folder = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(uri)
    for grid in ("full_participation", "fairness"):
        experiment = client.create_experiment(grid, (folder / "artifacts").as_uri())
        for method in ("fedavg", "fedfv", "fedcome"):
            for seed, accuracy in enumerate((70.0, 72.0, 74.0)):
                rows = trial(method, seed, 30.0, accuracy, grid=grid)
                log_trial(client, experiment, rows.assign(**{UNNAMED_METRIC: seed / 8}), folder)
        failed = trial("feddyn", 0, grid=grid, status="FAILED", rounds=2)
        log_trial(client, experiment, failed, folder)
        launch = client.create_run(experiment, tags={"fedcome.kind": "launch"})
        client.set_terminated(launch.info.run_id)
    return uri


def log_trial(client: MlflowClient, experiment: str, rows: pd.DataFrame, folder: Path) -> None:
    """Write a trial as the platform does."""
    first = rows.iloc[0]
    tags = {f"fedcome.{name}": str(first[name]) for name in TRIAL_COLUMNS if name in rows}
    tags |= {"fedcome.kind": "trial", "fedcome.version.torch": "2"}
    run_id = client.create_run(experiment, tags=tags).info.run_id
    settings = [str(n) for n in rows if "/" not in n and n != "round" and n not in TRIAL_COLUMNS]
    metrics = [
        Metric(str(name), row[name], 0, int(row["round"]))
        for _, row in rows.dropna(subset="round").iterrows()
        for name in rows
        if "/" in str(name) and name in row
    ]
    client.log_batch(run_id, metrics, [Param(name, str(first[name])) for name in settings])
    clients = [
        {"round": r, "client": c, "test_loss": 2.0 - r, "test_accuracy": 0.5 + 0.1 * c}
        for r in range(2)
        for c in range(4)
    ]
    path = folder / "clients.parquet"
    pd.DataFrame(clients).to_parquet(path)
    if first["status"] == "FINISHED":
        client.log_artifact(run_id, str(path))
    client.set_terminated(run_id, str(first["status"]))
