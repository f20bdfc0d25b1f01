"""Trials that finished without having been run."""

from pathlib import Path
from typing import Any

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.trials.folder import TrialResult, write_result

ARITHMETIC = {"portable": "false", "cpu": "one", "device": "cpu", "company": "independent"}


def finish(trial: Trial, folder: Path, accuracy: float = 0.5, **changes: Any) -> TrialResult:
    """Leave the result of a trial in its folder."""
    content: dict[str, Any] = {
        "key": trial.key,
        "name": trial.name,
        "rounds": trial.rounds,
        "final": {metrics.ACCURACY: accuracy, metrics.ACCURACY_TAIL: accuracy},
        "params_sha256": "",
        "recoveries": 0,
        "provenance": {"commit": "a commit"},
        "computed_with": [ARITHMETIC],
    }
    result = TrialResult(**{**content, **changes})
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder, result)
    return result
