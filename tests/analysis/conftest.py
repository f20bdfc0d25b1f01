"""Trials made by hand, with accuracies whose means and deviations are round numbers."""

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from analysis import scope, scores
from analysis.results import NO_ROWS, TRIAL_COLUMNS, parse
from analysis.study import Study, select
from fedcome_ray.experiments.grid import expand, grid_names, load
from fedcome_ray.experiments.settings import flatten

USUAL: dict[str, Any] = {  # of grids that are not ours
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


@cache
def profile_trials(grid: str, profile: str) -> list[dict[str, Any]]:
    """The settings of a grid's trials as the store gives them back."""
    if grid not in grid_names():
        return [USUAL]
    found = expand(load(grid), profile)
    flat = (flatten(trial.model_dump(mode="json")) for trial in found)
    return [{name: parse(str(value)) for name, value in one.items()} for one in flat]


def settings_of(method: str, grid: str, profile: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The profile's trial that is most like the one wanted, with what is wanted."""
    wanted = {"method.name": method, **wanted}
    usual = {**wanted, "data.dataset": wanted.get("data.dataset", "cifar10")}
    trials = profile_trials(grid, profile)
    like = max(trials, key=lambda own: sum(own.get(k) == v for k, v in usual.items()))
    if like.get("method.name") != method:
        like = {name: value for name, value in like.items() if not name.startswith("method.")}
    return {**like, **wanted}


def trial(method: str, seed: int, *accuracies: float, **changes: Any) -> pd.DataFrame:
    """A trial with an evaluated round for each accuracy, given in %; `a__b` stands for `a.b`.

    It has the settings of its grid's profile, also the rounds, with the evaluations spread over
    them; given `rounds` or `eval_every`, every accuracy is that of one round.
    """
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    identity = IDENTITY | {name: value for name, value in changes.items() if name in IDENTITY}
    wanted = {name: value for name, value in changes.items() if name not in IDENTITY}
    is_short = bool({"rounds", "eval_every"} & set(wanted)) or identity["grid"] not in grid_names()
    if is_short:
        wanted = {"rounds": len(accuracies), "eval_every": 1, **wanted}
    settings = settings_of(method, identity["grid"], identity["profile"], wanted) | {"seed": seed}
    if not is_short:
        settings["eval_every"] = -(-settings["rounds"] // (len(accuracies) or 3))
    every = 1 if is_short else settings["eval_every"]
    numbers = [min(every * i, settings["rounds"]) for i in range(1, len(accuracies) + 1)]
    key = f"{len(trial.keys):012x}"
    trial.keys.append(key)
    rounds = {
        "round": numbers,
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


def population_of(trials: pd.DataFrame) -> pd.DataFrame:
    """Clients of the paper's number, with the paper's number of examples, for each trial."""
    sizes = pd.read_csv(scope.PAPER_DATASETS).set_index("data.dataset")
    rows = []
    for _, own in trials.drop_duplicates("run_id").iterrows():
        if own["data.dataset"] in sizes.index:
            size = sizes.loc[own["data.dataset"]]
            clients = pd.DataFrame({"client": range(size["clients"]), "classes": "0 1"})
            for side in ("train", "test"):
                # Not exactly alike, as the sizes of FEMNIST's writers are not.
                clients[f"num_{side}"] = size[side] // size["clients"]
                clients.loc[0, f"num_{side}"] += size[side] % size["clients"]
            rows.append(clients.assign(run_id=own["run_id"]))
    return pd.concat(rows, ignore_index=True) if rows else NO_ROWS


def opened(frame: pd.DataFrame) -> Study:
    """A study as the store would give it, with populations of the paper's size."""
    study = select(frame)
    trials = scores.trials(study.frame)
    data = [name for name in scores.settings(trials) if name.startswith("data.")]
    population = population_of(trials.drop_duplicates(data))
    if population.empty:
        return study
    papers = scope.papers(trials, scores.settings(trials), population)
    return study._replace(population=population, papers=papers)


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
        failed = trial("feddyn", 0, grid=grid, status="FAILED")
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
    pd.DataFrame(clients).to_parquet(folder / "clients.parquet")
    population_of(rows).to_parquet(folder / "population.parquet")
    if first["status"] == "FINISHED":
        client.log_artifact(run_id, str(folder / "clients.parquet"))
        client.log_artifact(run_id, str(folder / "population.parquet"))
    client.set_terminated(run_id, str(first["status"]))
