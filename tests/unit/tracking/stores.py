"""A trial, its rounds and its folder; and what a store holds, read by MLflow itself."""

import json
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from fedcome_ray.experiments.trial import parse_trial

TRIAL = parse_trial({"method": {"name": "fedprox", "mu": 0.5}, "rounds": 4, "seed": 7})
TAGS = {"grid": "small", "profile": "quick", "launch": "now"}


def line(number: int) -> dict[str, Any]:
    return {
        "round": number,
        "time": 1000.0 + number,
        "metrics": {"accuracy/test": 0.1 * number} if number % 2 else {},
        "seconds": {"seconds/round": 0.5},
    }


def lines(*numbers: int) -> list[dict[str, Any]]:
    return [line(number) for number in numbers]


def write_folder(folder: Path) -> None:
    """What a finished trial leaves, as far as a store reads it."""
    folder.mkdir()
    (folder / "trial.json").write_text(TRIAL.model_dump_json())
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line(n)) + "\n" for n in range(4)))


def uri_of(database: Path) -> str:
    return f"sqlite:///{database}"


def client_of(database: Path) -> MlflowClient:
    return MlflowClient(uri_of(database))


def runs(database: Path, kind: str = "trial") -> list[Any]:
    client = client_of(database)
    experiment = client.get_experiment_by_name("small")
    return list(client.search_runs([experiment.experiment_id], f"tags.`fedcome.kind` = '{kind}'"))


def steps(database: Path, metric: str = "seconds/round") -> list[int]:
    (run,) = runs(database)
    history = client_of(database).get_metric_history(run.info.run_id, metric)
    return sorted(point.step for point in history)
