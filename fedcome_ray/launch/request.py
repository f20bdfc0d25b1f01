"""What a launch is asked to run, and what there is of it already."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from safetensors import SafetensorError

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.runtime.schedulers import RunAll, Scheduler
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import CHECKPOINT, TrialResult, read_own_result


@dataclass(frozen=True)
class Extras:
    """What a launch shows or keeps beside its results."""

    timing: bool = False
    trace: bool = False
    system_metrics: bool = False
    best: Path | None = None  # file for the best settings


@dataclass(frozen=True)
class Request:
    """The trials of a grid, and how they are run."""

    grid_name: str
    profile: str
    trials: Sequence[Trial]
    locations: Locations
    machine: MachineOptions = field(default_factory=MachineOptions)
    measure: grid.Measure = "accuracy"
    extras: Extras = field(default_factory=Extras)
    scheduler: Scheduler = field(default_factory=RunAll)
    made_from: Mapping[str, str] = field(default_factory=dict)
    """The files that the request was written in, for MLflow, see `made_from`."""
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))

    @property
    def log(self) -> Path:
        """Where libraries print to while the launch runs."""
        return self.locations.output / "logs" / f"{self.name}.log"

    @property
    def trials_folder(self) -> Path:
        return self.locations.output / "trials"

    def folder(self, trial: Trial) -> Path:
        return self.trials_folder / trial.folder_name


def made_from(
    grid_file: Path | None, overlay: Path | None, plugins: Iterable[str]
) -> dict[str, str]:
    """The contents of the files that decide what trials are, by the name to keep them under."""
    given = [
        *([("grid", grid_file)] if grid_file else []),
        *([("overlay", overlay)] if overlay else []),
        *(("plugins", Path(file)) for file in plugins),
    ]
    return {
        f"made_from/{kind}/{path.name}": path.read_text(encoding="utf-8", errors="replace")
        for kind, path in given
    }


@dataclass(frozen=True)
class Finished:
    """The finished trials of a request, whichever launch ran them: read once, then looked up."""

    request: Request
    results: dict[str, TrialResult]  # by trial key

    @staticmethod
    def read(request: Request) -> "Finished":
        found = {trial.key: read_own_result(request.folder(trial)) for trial in request.trials}
        return Finished(request, {key: one for key, one in found.items() if one is not None})

    @property
    def trials(self) -> list[Trial]:
        return [trial for trial in self.request.trials if trial.key in self.results]

    @cached_property
    def begun(self) -> dict[str, int]:
        """The rounds done of pending trials that have a checkpoint, by trial key."""
        files = {trial.key: self.request.folder(trial) / CHECKPOINT for trial in self.pending}
        found = {key: _rounds_in(file) for key, file in files.items() if file.exists()}
        return {key: rounds for key, rounds in found.items() if rounds}

    @cached_property
    def pending(self) -> list[Trial]:
        """The trials that are left to run: neither finished nor stopped early."""
        request = self.request
        return [
            trial
            for trial in request.trials
            if trial.key not in self.results
            and not request.scheduler.is_stopped(request.folder(trial))
        ]


def _rounds_in(file: Path) -> int:
    try:
        return checkpoint.read_number(file, "server.round_index")
    except (SafetensorError, OSError):
        return 0  # the trial itself will say that its checkpoint is damaged
