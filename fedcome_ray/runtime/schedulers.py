"""Which trials of a launch go on: all of them, or only those that do well."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fedcome_ray.experiments.trial import Trial
from fedcome_ray.trials.folder import STOPPED


class Scheduler(Protocol):
    """Decides, with Ray Tune, whether trials are stopped before their last round."""

    report_seconds: float
    """How often trials report: a decision can be made at every report."""

    def of_tune(self, trials: Sequence[Trial]) -> Any:
        """The scheduler of Tune for these trials; None is Tune's own, which stops none."""

    def is_stopped(self, folder: Path) -> bool:
        """Whether an earlier launch like this one stopped the trial of this folder."""

    def stop(self, folder: Path) -> None:
        """Remember that the trial of this folder was stopped."""


class RunAll:
    """Every trial runs to its end."""

    report_seconds = 1.0  # a report costs more than a small round

    def of_tune(self, trials: Sequence[Trial]) -> None:
        return None

    def is_stopped(self, folder: Path) -> bool:
        return False

    def stop(self, folder: Path) -> None:
        raise AssertionError(f"nothing stops {folder}")


class SuccessiveHalving:
    """After 1/9 and 1/3 of the rounds only the best third goes on."""

    report_seconds = 0.0  # looks at every round

    def of_tune(self, trials: Sequence[Trial]) -> Any:
        from ray.tune.schedulers import ASHAScheduler

        rounds = max(trial.rounds for trial in trials)
        return ASHAScheduler(
            time_attr="rounds_done",
            metric="accuracy",
            mode="max",
            max_t=rounds,
            grace_period=math.ceil(rounds / 9),
            reduction_factor=3,
        )

    def is_stopped(self, folder: Path) -> bool:
        return (folder / STOPPED).exists()

    def stop(self, folder: Path) -> None:
        (folder / STOPPED).touch()
