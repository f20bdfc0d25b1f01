"""Trials and grids from Python: the same runs as the commands', as data frames.

    result = run(Trial(method={"name": "fedcome"}, rounds=20))
    result.rounds.plot(x="round", y="accuracy/test")

Names here are those of the package: `from fedcome_ray import Trial, run`.
"""

import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from fedcome_ray import datasets, metrics, models
from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.console.paths import check_data_dir, find_output, open_output, tracking_uri
from fedcome_ray.datasets.population import form_of
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial, identified, parse_trial
from fedcome_ray.models.module import as_module
from fedcome_ray.plugins import load_plugins
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials.folder import (
    CLIENTS,
    MODEL,
    RESULT,
    SETTINGS,
    TRIALS,
    TrialResult,
    is_lasting,
    read_result,
    read_rounds,
    verified,
)

if TYPE_CHECKING:
    import pandas as pd
    import torch


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A finished trial."""

    trial: Trial
    final: dict[str, float]
    """The metrics of the last round."""
    rounds: "pd.DataFrame"
    """A row for each round, 0 being the initial model; the metrics by their names, the seconds."""
    clients: "pd.DataFrame"
    """A row for each evaluated round and client."""
    params: "torch.Tensor"
    """The final params, one flat vector."""

    def __repr__(self) -> str:
        accuracy = f"accuracy {self.final[metrics.ACCURACY]:.4f}"
        return (
            f"<Result of {self.trial.name} after {self.rounds['round'].max()} rounds, {accuracy}>"
        )

    def model(self) -> "torch.nn.Module":
        """The model with the final params; it takes examples and gives logits."""
        shape = datasets.describe(self.trial.data)
        built = models.build(self.trial.model, *form_of(shape))
        return as_module(built, self.params)


@dataclass(frozen=True)
class Results:
    """Finished trials, side by side."""

    folders: Sequence[Path]
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why trials failed, by their keys."""

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

    def __bool__(self) -> bool:
        return True  # with all trials failed there are still failures to look at

    def __iter__(self) -> Iterator[str]:
        """The keys of the trials."""
        return (_finished(folder).key for folder in self.folders)

    def __getitem__(self, key: str) -> Result:
        """The trial with this key."""
        for folder in self.folders:
            if _finished(folder).key == key:
                return _read(folder)
        raise KeyError(key)


def run(
    trial: Trial | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    data_dir: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    num_shards: int | None = None,
    address: str | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
) -> Result:
    """Run a trial, in this process or on shards of a Ray cluster; the numbers are the same.

    A trial that needs a plugin is given by its settings, as a mapping: it can be checked only when
    the plugin is loaded. With `output` the trial is kept in that folder, or at that address of
    object storage, and tracked in MLflow there, is continued if it was interrupted, and is not run
    again if it is finished. Without, nothing is left on disk.
    """
    from fedcome_ray.launch.single import SingleRequest, run_single

    files = _files(plugins)
    load_plugins(files)
    wanted = trial if isinstance(trial, Trial) else parse_trial(dict(trial))
    (own,) = identified([wanted], _folder(data_dir))
    machine = MachineOptions(address, num_shards=num_shards, device=device)
    with ExitStack() as stack:
        if output is None:
            scratch = tempfile.TemporaryDirectory(prefix="fedcome-")
            locations = _locations(stack.enter_context(scratch), data_dir, files)
        else:
            locations = _locations(output, data_dir, files)
        request = SingleRequest(own, locations, machine, is_tracked=output is not None)
        _, complaint = run_single(request, _console())
        _warn(complaint)
        return _read(request.folder)


def run_grid(
    name: str | Path | None = None,
    profile: str | None = None,
    set: Mapping[str, Any] | None = None,
    output: str | Path = "results",
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    data_dir: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    num_shards: int | None = None,
    max_concurrent: int | None = None,
    address: str | None = None,
    device: Literal["auto", "cpu", "gpu"] = "auto",
) -> Results:
    """Run a grid of ours, or a .yaml file's, on Ray Tune; what is finished is not run again.

    Without `profile` it is `quick`, or the grid itself if it has no profiles. `set` has settings of
    every trial by dotted name, as `--set` of the command, and `axes` lists of values, as `--axis`;
    with axes, a grid is not needed. Trials that fail do not stop the others;
    see `Results.failures`.
    """
    from fedcome_ray.console.output import noise_to
    from fedcome_ray.launch.launch import fetch, launch
    from fedcome_ray.launch.request import Finished, Request, made_from

    files = _files(plugins)
    load_plugins(files)
    if name is None and not axes:
        raise UserError("run_grid: give the name of a grid, or axes")
    loaded = grid.load(str(name)) if name is not None else grid.DEFAULTS_ALONE
    chosen = grid.profile_name(loaded, profile)
    wanted = grid.sweep(loaded, chosen, list((set or {}).items()), axes or {})
    locations = _locations(output, data_dir, files)
    machine = MachineOptions(
        address, num_shards=num_shards, max_concurrent=max_concurrent, device=device
    )
    trials = identified(wanted, locations.data_dir)
    grid_name = Path(name).stem if name is not None else grid.SWEEP
    sources = made_from(grid.find(str(name)) if name is not None else None, None, files)
    request = Request(
        grid_name, chosen, trials, locations, machine, loaded.measure, made_from=sources
    )
    console = _console()
    with noise_to(request.log) as stderr:
        shown = console if console.is_jupyter else Console(file=stderr)
        outcome = launch(request, shown)
    if outcome.is_interrupted:
        raise KeyboardInterrupt("the same call goes on")
    _warn(outcome.complaint)
    finished = Finished.read(request)
    for trial in finished.trials:
        fetch(locations, request.folder(trial))
    return Results([request.folder(trial) for trial in finished.trials], outcome.failures)


def results(folder: str | Path = "results", *, plugins: Iterable[str | Path] = ()) -> Results:
    """The finished trials in an output folder, or at an address of object storage.

    Those of plugins need them to be read one by one.
    """
    load_plugins(_files(plugins))
    output, storage = find_output(folder)
    trials = output / TRIALS
    if storage is not None:
        storage.check(writable=False)
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        WorkingCopy(storage, output).pull(TRIALS, is_lasting)
    if not trials.is_dir():
        raise UserError(f"`{folder}` is no folder of results: it has no folder `trials`")
    return Results(sorted(path.parent for path in trials.glob(f"*/{RESULT}")))


def _console() -> Console:
    """In a notebook, the notebook; else stderr, as the commands have it."""
    console = Console()
    return console if console.is_jupyter else Console(stderr=True)


def _warn(complaint: str | None) -> None:
    if complaint is not None:
        warnings.warn(complaint, RuntimeWarning, stacklevel=3)


def _locations(
    output: str | Path, data_dir: str | Path | None, plugins: tuple[str, ...]
) -> Locations:
    folder, storage = open_output(output)
    return Locations(folder, tracking_uri(None, folder), _folder(data_dir), plugins, storage)


def _folder(data_dir: str | Path | None) -> Path | None:
    return check_data_dir(Path(data_dir)) if data_dir is not None else None


def _files(plugins: Iterable[str | Path]) -> tuple[str, ...]:
    if isinstance(plugins, str | Path):
        raise UserError(f"plugins: expected a list of files, got `{plugins}`")
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
        clients=pd.read_parquet(verified(folder, CLIENTS)),
        params=load_file(verified(folder, MODEL))["params"],
    )


def _trial_of(folder: Path) -> Trial:
    return parse_trial(json.loads(verified(folder, SETTINGS).read_text()))


def _trial_row(folder: Path) -> dict[str, Any]:
    found = _finished(folder)
    settings = flatten(json.loads(verified(folder, SETTINGS).read_text()))
    return {"key": found.key, "name": found.name, **settings, **found.final}


def _rounds_frame(folder: Path, found: TrialResult) -> "pd.DataFrame":
    import pandas as pd

    rows = [
        {"key": found.key, "name": found.name, "round": one.number, **one.metrics, **one.seconds}
        for one in read_rounds(folder)
    ]
    return pd.DataFrame(rows)
