"""What a launch is asked to run, and what there is of it already."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import torch

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import (
    CHECKPOINT,
    RESULT,
    ROUNDS,
    ROUNDS_DONE,
    TRIALS,
    TrialResult,
    read_own_result,
    read_rounds,
)


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
    init_params: torch.Tensor | None = None
    """What all trials start from, where that is not drawn from their seeds."""
    pause_after: int | None = None
    """Rounds after which trials pause, for a later launch to go on with some of them."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """The files that the request was written in, for MLflow, see `made_from`."""
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))

    @property
    def selects(self) -> bool:
        """Whether its trials may be chosen from: they are compared on held-out examples."""
        return all(trial.data.validation is not None for trial in self.trials)

    @property
    def log(self) -> Path:
        """Where libraries print to while the launch runs."""
        return self.locations.output / "logs" / f"{self.name}.log"

    @property
    def trials_folder(self) -> Path:
        return self.locations.output / TRIALS

    def folder(self, trial: Trial) -> Path:
        return self.trials_folder / trial.folder_name

    def refresh(self) -> None:
        """Bring what a storage has of the trials, as far as `Finished` looks at it."""
        if (copy := self.locations.working_copy) is not None:
            folders = [f"{TRIALS}/{trial.folder_name}" for trial in self.trials]
            wanted = {f"{folder}/{name}" for folder in folders for name in (RESULT, ROUNDS)}
            copy.pull(TRIALS, wanted.__contains__)

    def rounds_begun(self, trial: Trial) -> int:
        """The rounds done of a trial that has a checkpoint, 0 of any other."""
        folder = self.folder(trial)
        return rounds_begun(folder) if self.locations.storage is None else rounds_kept(folder)


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
        request.refresh()
        found = {trial.key: read_own_result(request.folder(trial)) for trial in request.trials}
        return Finished(request, {key: one for key, one in found.items() if one is not None})

    @property
    def trials(self) -> list[Trial]:
        return [trial for trial in self.request.trials if trial.key in self.results]

    @cached_property
    def begun(self) -> dict[str, int]:
        """The rounds done of pending trials that have a checkpoint, by trial key."""
        found = {trial.key: self.request.rounds_begun(trial) for trial in self.pending}
        return {key: rounds for key, rounds in found.items() if rounds}

    @cached_property
    def pending(self) -> list[Trial]:
        """The trials that are left to run: neither finished nor where they pause."""
        request, end = self.request, self.request.pause_after or math.inf
        return [
            trial
            for trial in request.trials
            if trial.key not in self.results and request.rounds_begun(trial) < end
        ]


def rounds_begun(folder: Path) -> int:
    """The rounds done of a trial that has a checkpoint, 0 of any other."""
    try:
        return checkpoint.read_number(folder / CHECKPOINT, ROUNDS_DONE)
    except checkpoint.DAMAGE:
        return 0  # a damaged one the trial itself will complain about


def rounds_kept(folder: Path) -> int:
    """The same of a trial in a storage: its history is sent with each checkpoint.

    After a failure it may be ahead, which is only what a launch says.
    """
    try:
        history = read_rounds(folder)
    except FedcomeError:
        return 0
    return history[-1].number if history else 0
