"""Grids: from a YAML file to a list of validated trials.

A grid file is the record of an experiment and can be read alone:

    description: one line
    base: {...}              the settings that all trials share
    axes: {method: [...], seed: [...]}   trials are the product of these, in this order
    profiles:                scaled-down variants; `set` and `axes` replace what they name
      quick: {set: {rounds: 20, data: {...}}, axes: {seed: [0]}}

Names are dotted (`local.lr`). The axis `case` has values that are several settings at once.

Later wins: defaults, `base`, the profile's `set`, axes, `--overlay`, `--set` and `--axis`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError

from fedcome_ray.errors import ConfigError, GridError, did_you_mean
from fedcome_ray.experiments.settings import Setting, Settings, assign, flatten, is_choice
from fedcome_ray.experiments.trial import Trial, explain, parse_trial
from fedcome_ray.hyperparameters import Hyperparameters

Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]
PROFILES = ("quick", "laptop", "mini", "paper")
"""Of every grid of ours, from the smallest to the largest."""


Measure = Literal["accuracy", "cost"]


class Profile(Hyperparameters):
    """A variant of a grid: settings and axes to replace, by dotted name."""

    set: Settings = Field(default_factory=dict)
    axes: Axes = Field(default_factory=dict)


class Grid(Hyperparameters):
    """A grid file."""

    description: str
    base: Settings = Field(default_factory=dict)
    axes: Axes = Field(default_factory=dict)
    profiles: dict[str, Profile]
    measure: Measure = "accuracy"
    """What the table at the end of a launch compares: accuracy, or the cost of a round."""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Ranges of the settings of methods, see `fedcome_ray.launch.search`."""


SWEEP = "sweep"
"""Stands for the name of a grid where axes need none."""
NO_PROFILE = "none"
DEFAULTS_ALONE = Grid(description="Axes alone.", profiles={NO_PROFILE: Profile()})


def grid_folder() -> Path:
    """Where the grids are: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "tune_configs"
    return installed if installed.is_dir() else package.parent / "tune_configs"


def grid_names() -> list[str]:
    """The grids that can be named without a path."""
    return sorted(path.stem for path in grid_folder().glob("*.yaml"))


def load(name_or_path: str) -> Grid:
    """Read and check a grid file, given as a name of ours or as a path."""
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        path = grid_folder() / f"{name_or_path}.yaml"
        if not path.is_file():
            allowed = did_you_mean(name_or_path, grid_names())
            raise GridError(
                f"--grid: there is no grid `{name_or_path}`; {allowed}, or a .yaml path"
            )
    try:
        return Grid.model_validate(read_yaml(path, "--grid"))
    except ValidationError as error:
        raise GridError(f"{path.name} is not a grid:\n{explain(error, Grid)}") from None


def read_yaml(path: Path, option: str) -> Any:
    """The content of a file that an option of the command line names."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GridError(f"{option}: cannot read `{path}`: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GridError(f"{option}: {path.name} is not valid YAML: {error}") from None


SELECTING = ("method.name", "sampler.name", "data.dataset")
"""Settings that a grid compares: choosing one of their values selects trials."""


def expand(
    grid: Grid,
    profile: str,
    overrides: Iterable[Setting] = (),
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[Trial]:
    """All trials of a profile, each once, in the order of the axes."""
    chosen, given = profile_of(grid, profile), list(overrides)
    found = select(points(grid, chosen, given), given)
    for point in found:
        override(point, given, overlay)
    return validate([point.settings for point in found])


def sweep(
    grid: Grid,
    profile: str,
    overrides: Iterable[Setting],
    axes: Mapping[str, Sequence[Any]],
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[Trial]:
    """All trials of a profile with further axes: each of their points is an override, in turn."""
    given = list(overrides)
    trials: dict[str, Trial] = {}
    for values in product(*axes.values()):
        point = list(zip(axes, values, strict=True))
        trials |= {trial.key: trial for trial in expand(grid, profile, [*given, *point], overlay)}
    return list(trials.values())


def profile_of(grid: Grid, name: str) -> Profile:
    if name not in grid.profiles:
        raise GridError(f"--profile: no profile `{name}`; {did_you_mean(name, grid.profiles)}")
    return grid.profiles[name]


class Point(NamedTuple):
    """A point of a grid."""

    settings: Settings
    coordinates: list[Setting]  # on the axes


def points(grid: Grid, profile: Profile, overrides: Sequence[Setting]) -> list[Point]:
    """All points of the grid; an axis that is overridden has one value."""
    replaced = {**profile.axes, **{name: [value] for name, value in overrides}}
    axes = {name: replaced.get(name, values) for name, values in grid.axes.items()}
    axes |= {name: values for name, values in profile.axes.items() if name not in axes}
    found = []
    for values in product(*axes.values()):
        settings = defaults()
        assign(settings, grid.base.items())
        assign(settings, profile.set.items())
        coordinates = list(zip(axes, values, strict=True))
        assign(settings, coordinates)
        found.append(Point(settings, coordinates))
    return found


def select(points: list[Point], overrides: Sequence[Setting]) -> list[Point]:
    """Keep the points that have what is chosen of the compared settings.

    If none has it, all are kept: then it is not a selection but a wish for all of them.
    """
    for name, value in overrides:
        if name in SELECTING:
            has = [point for point in points if flatten(point.settings).get(name) == value]
            points = has or points
    return points


def override(
    point: Point, overrides: Sequence[Setting], overlay: Callable[[Settings], None]
) -> None:
    """Make the wishes of the command line; an overlay gives settings to what they choose.

    A choice drops the settings of what was chosen before, but not what the grid compares: another
    dataset is still tried with 2, 3 and 4 classes, or refused if it has no such setting.
    """
    choices = [(name, value) for name, value in overrides if is_choice(name)]
    assign(point.settings, choices)
    owners = tuple(name.rpartition(".")[0] + "." for name, _ in choices)
    assign(point.settings, [axis for axis in point.coordinates if axis[0].startswith(owners)])
    overlay(point.settings)
    assign(point.settings, overrides)


def validate(points: Iterable[Settings]) -> list[Trial]:
    """The trials, each once."""
    trials: dict[str, Trial] = {}
    for number, settings in enumerate(points, start=1):
        try:
            trial = parse_trial(settings)
        except ConfigError as error:
            raise GridError(f"trial {number} of the grid:\n{error}") from None
        if trial.init_digest is not None:
            raise GridError("init_digest: only `fedcome_ray.run --init-model` starts from a file")
        trials.setdefault(trial.key, trial)
    return list(trials.values())


def defaults() -> Settings:
    """A trial without any wishes, so that `data.num_clients=20` needs no `data.dataset`."""
    return Trial().model_dump(mode="json")
