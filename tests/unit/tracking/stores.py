"""A trial, its rounds and its folder; and what a store holds, read by MLflow itself."""

from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.trials.folder import write_rounds

TRIAL = parse_trial({"method": {"name": "fedprox", "mu": 0.5}, "rounds": 4, "seed": 7})
TAGS = {"grid": "small", "profile": "quick", "launch": "now", "command": "python -m this"}


def some_rounds(*indices: int) -> list[Round]:
    """Every other round is evaluated."""
    return [
        Round(
            number=index,
            cohort=(),
            metrics={metrics.ACCURACY: 0.1 * index} if index % 2 else {},
            seconds={metrics.SECONDS_ROUND: 0.5},
            time=1000.0 + index,
        )
        for index in indices
    ]


def write_folder(folder: Path) -> None:
    """What a finished trial leaves, as far as a store reads it."""
    folder.mkdir()
    (folder / "trial.json").write_text(TRIAL.model_dump_json())
    (folder / "commands.txt").write_text("python -m that\npython -m more\n")
    (folder / "plugins" / "mine").mkdir(parents=True)
    (folder / "plugins" / "mine" / "mine.py").write_text("code = 1\n")
    write_rounds(folder, some_rounds(*range(4)))


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
