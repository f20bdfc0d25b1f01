"""What trials leave, for comparison: in an output folder and in MLflow."""

from pathlib import Path
from typing import Any

from rich.console import Console

from fedcome_ray.console.options import Locations
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.launch.single import SingleRequest, run_single
from fedcome_ray.trials.folder import read_result, read_rounds


def run_untracked(trial: Trial, output: Path) -> None:
    """Run a trial, or go on with it, in this process and without MLflow."""
    request = SingleRequest(trial, Locations(output, "", None, ()), is_tracked=False)
    run_single(request, Console(quiet=True))


def bits(output: Path) -> dict[str, Any]:
    """The hash of its params and the history, without times, of each trial."""
    return {folder.name: _bits(folder) for folder in (output / "trials").iterdir()}


def _bits(folder: Path) -> tuple[str | None, list[dict[str, float]]]:
    result = read_result(folder)
    history = [
        {name: value for name, value in one.metrics.items() if "seconds" not in name}
        for one in read_rounds(folder)
    ]
    return (result.params_sha256 if result else None), history


def rounds_in_mlflow(uri: str, experiment: str) -> list[tuple[str, list[int]]]:
    """Of each trial, how it ended and which rounds it has, as MLflow itself reads it."""
    from mlflow import MlflowClient  # slow to import

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    runs = client.search_runs([found.experiment_id], "tags.`fedcome.kind` = 'trial'")
    return [
        (run.info.status, sorted(point.step for point in history))
        for run in runs
        for history in [client.get_metric_history(run.info.run_id, "seconds/round")]
    ]
