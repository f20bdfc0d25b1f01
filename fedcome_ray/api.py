"""Trials and grids from Python: the same runs as the commands', as data frames.

    result = run(Trial(method={"name": "fedcome"}, rounds=20))
    result.rounds.plot(x="round", y="accuracy/test")

Names here are those of the package: `from fedcome_ray import Trial, run`.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fedcome_ray import datasets, methods, models
from fedcome_ray.console.options import MachineOptions, Places
from fedcome_ray.console.paths import check_data_dir, check_output, default_tracking_uri
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial, identified, parse_trial
from fedcome_ray.models.module import as_module
from fedcome_ray.trials.folder import MODEL, RESULT, SETTINGS, TrialResult, read_result, read_rounds

if TYPE_CHECKING:
    import pandas as pd
    import torch


@dataclass(frozen=True)
class Result:
    """A finished trial."""

    trial: Trial
    final: dict[str, float]
    """The metrics of the last round."""
    rounds: "pd.DataFrame"
    """A row for each round; columns `round`, the metrics by their names, the seconds."""
    clients: "pd.DataFrame"
    """A row for each evaluated round and client."""
    params: "torch.Tensor"
    """The final params, one flat vector."""

    def model(self) -> "torch.nn.Module":
        """The model with the final params; it takes examples and gives logits."""
        shape = datasets.describe(self.trial.data)
        built = models.build(self.trial.model, shape.feature_shape, shape.num_classes)
        return as_module(built, self.params)


@dataclass(frozen=True)
class Results:
    """Finished trials, side by side."""

    folders: Sequence[Path]
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why trials failed, by their names."""

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """A row for each trial: key, name, settings by dotted name, metrics of the last round."""
        import pandas as pd  # slow to import

        return pd.DataFrame([_trial_row(folder) for folder in self.folders])

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """A row for each trial and round: `key` and `name` of the trial, `round`, metrics."""
        import pandas as pd

        frames = [_rounds_frame(folder, _finished(folder)) for folder in self.folders]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, key: str) -> Result:
        """The trial with this key."""
        for folder in self.folders:
            if _finished(folder).key == key:
                return _read(folder)
        raise KeyError(key)


def run(
    trial: Trial,
    output: str | Path | None = None,
    *,
    data_dir: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    num_shards: int | None = None,
    address: str | None = None,
) -> Result:
    """Run a trial, in this process or on shards of a Ray cluster; the numbers are the same.

    With `output` the trial is kept in that folder and tracked in MLflow there, is continued if it
    was interrupted, and is not run again if it is finished. Without, nothing is left on disk.
    """
    from fedcome_ray.launch.single import SingleRequest, run_single

    machine = MachineOptions(num_shards=num_shards, address=address)
    (trial,) = identified([trial], _folder(data_dir))
    if output is None:
        with tempfile.TemporaryDirectory(prefix="fedcome-") as scratch:
            places = _places(scratch, data_dir, plugins)
            request = SingleRequest(trial, places, machine, is_tracked=False)
            run_single(request, _console())
            return _read(request.folder)
    request = SingleRequest(trial, _places(output, data_dir, plugins), machine)
    run_single(request, _console())
    return _read(request.folder)


def run_grid(
    name: str | Path,
    profile: str = "quick",
    set: Mapping[str, Any] | None = None,
    output: str | Path = "results",
    *,
    data_dir: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    machine: MachineOptions | None = None,
) -> Results:
    """Run a grid of ours, or a .yaml file's, on Ray Tune; what is finished is not run again.

    `set` has settings of every trial by dotted name, as `--set` of the command.
    """
    from fedcome_ray.console.output import noise_to
    from fedcome_ray.launch.launch import launch
    from fedcome_ray.launch.request import Finished, Request

    methods.load_plugins(_files(plugins))
    overrides = list((set or {}).items())
    places = _places(output, data_dir, plugins)
    trials = identified(grid.expand(grid.load(str(name)), profile, overrides), places.data_dir)
    request = Request(Path(name).stem, profile, trials, places, machine or MachineOptions())
    console = _console()
    with noise_to(request.log) as stderr:
        if not console.is_jupyter:
            console = Console(file=stderr)
        outcome = launch(request, Console(quiet=True), console)
    if outcome.is_interrupted:
        raise KeyboardInterrupt("the same call goes on")
    names = {trial.key: trial.name for trial in trials}
    failures = {names[key]: why for key, why in outcome.failures.items()}
    finished = Finished.read(request)
    return Results([request.folder(trial) for trial in finished.trials], failures)


def results(folder: str | Path = "results") -> Results:
    """The finished trials in an output folder."""
    trials = Path(folder).expanduser() / "trials"
    if not trials.is_dir():
        raise UserError(f"`{folder}` is no folder of results: it has no folder `trials`")
    return Results(sorted(path.parent for path in trials.glob(f"*/{RESULT}")))


def _console() -> Console:
    """In a notebook, the notebook; else stderr, as the commands have it."""
    console = Console()
    return console if console.is_jupyter else Console(stderr=True)


def _places(
    output: str | Path, data_dir: str | Path | None, plugins: Iterable[str | Path]
) -> Places:
    folder = check_output(Path(output))
    uri = default_tracking_uri(folder)
    return Places(folder, uri, _folder(data_dir), _files(plugins))


def _folder(data_dir: str | Path | None) -> Path | None:
    return check_data_dir(Path(data_dir)) if data_dir is not None else None


def _files(plugins: Iterable[str | Path]) -> tuple[str, ...]:
    return tuple(str(Path(file).absolute()) for file in plugins)


def _finished(folder: Path) -> TrialResult:
    result = read_result(folder)
    if result is None:
        raise UserError(f"the trial in `{folder}` is not finished")
    return result


def _read(folder: Path) -> Result:
    import pandas as pd
    from safetensors.torch import load_file

    found = _finished(folder)
    rounds = _rounds_frame(folder, found).drop(columns=["key", "name"])
    return Result(
        trial=_trial_of(folder),
        final=found.final,
        rounds=rounds,
        clients=pd.read_parquet(folder / "clients.parquet"),
        params=load_file(folder / MODEL)["params"],
    )


def _trial_of(folder: Path) -> Trial:
    return parse_trial(json.loads((folder / SETTINGS).read_text()))


def _trial_row(folder: Path) -> dict[str, Any]:
    found = _finished(folder)
    settings = flatten(json.loads((folder / SETTINGS).read_text()))
    return {"key": found.key, "name": found.name, **settings, **found.final}


def _rounds_frame(folder: Path, found: TrialResult) -> "pd.DataFrame":
    import pandas as pd

    rows = [
        {"key": found.key, "name": found.name, "round": one.index, **one.metrics, **one.seconds}
        for one in read_rounds(folder)
    ]
    return pd.DataFrame(rows)
