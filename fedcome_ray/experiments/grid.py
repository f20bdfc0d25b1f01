"""Grids: from a YAML file to a list of validated trials.

A grid file is the record of an experiment and can be read alone:

    description: one line
    base: {...}              the settings that all trials share
    axes: {method: [...], seed: [...]}   trials are the product of these, in this order
    profiles:                scaled-down variants; `set` and `axes` replace what they name
      quick: {set: {rounds: 20, data: {...}}, axes: {seed: [0]}}

All parts are optional. Without profiles the grid is run as it is, under the profile `none`.
Names are dotted (`local.lr`). The axis `case` has values that are several settings at once.

Later wins: defaults, `base`, the profile's `set`, axes, `--overlay`, `--set` and `--axis`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from fedcome_ray.errors import ConfigError, GridError, did_you_mean
from fedcome_ray.experiments import yaml_text
from fedcome_ray.experiments.complaints import explain
from fedcome_ray.experiments.settings import (
    Draft,
    Origins,
    Setting,
    Settings,
    flatten,
    is_choice,
)
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.experiments.yaml_text import NotYamlError
from fedcome_ray.hyperparameters import Hyperparameters

Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]
PROFILES = ("quick", "laptop", "mini", "paper")
"""Of every grid of ours, from the smallest to the largest."""
DEFAULT_PROFILE = "quick"
MAX_BYTES = 2_000_000
"""Of a file of YAML."""
MAX_TRIALS = 20_000
"""Of a launch: more are a slip, and would take long to be written down."""
NO_PROFILE = "none"
"""What a grid without profiles is run under."""


Measure = Literal["accuracy", "cost"]


class Profile(Hyperparameters):
    """A variant of a grid: settings and axes to replace, by dotted name."""

    set: Settings = Field(default_factory=dict)
    """Settings that replace those of `base`."""
    axes: Axes = Field(default_factory=dict)
    """Axes that replace the grid's, or come after them."""


class Grid(Hyperparameters):
    """A grid file."""

    description: str = ""
    """What it is for, in one line."""
    base: Settings = Field(default_factory=dict)
    """The settings that all trials share."""
    axes: Axes = Field(default_factory=dict)
    """The values to try, by setting: trials are their product, in this order."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Variants by name, chosen by `--profile`; without any, the grid is run as it is."""
    measure: Measure = "accuracy"
    """What the table at the end of a launch compares: accuracy, or the cost of a round."""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Ranges of the settings of methods, see `fedcome_ray.launch.search`."""


SWEEP = "sweep"
"""Stands for the name of a grid where axes need none."""
DEFAULTS_ALONE = Grid(description="Axes alone.")


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
    path = find(name_or_path)
    try:
        return Grid.model_validate(read_yaml(path, "--grid"))
    except ValidationError as error:
        raise GridError(f"{path.name} is not a grid:\n{explain(error, Grid)}") from None


def find(name_or_path: str) -> Path:
    """The file of a grid."""
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        path = grid_folder() / f"{name_or_path}.yaml"
        if not path.is_file():
            allowed = did_you_mean(name_or_path, grid_names())
            raise GridError(
                f"--grid: there is no grid `{name_or_path}`; {allowed}, or a .yaml path"
            )
    return path


def read_yaml(path: Path, option: str) -> Any:
    """The content of a file that an option of the command line names."""
    try:
        if path.exists() and not path.is_file():  # it might have no end
            raise GridError(f"{option}: cannot read `{path}`: not a file")
        if path.exists() and path.stat().st_size > MAX_BYTES:
            raise GridError(f"{option}: `{path}` has more than {MAX_BYTES:,} bytes")
        return yaml_text.read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GridError(f"{option}: cannot read `{path}`: {error.strerror}") from None
    except (NotYamlError, UnicodeDecodeError) as error:
        raise GridError(f"{option}: {path.name} is not valid YAML: {error}") from None


SELECTING = ("method.name", "sampler.name", "data.dataset")
"""Settings that a grid compares: choosing one of their values selects trials."""


def expand(
    grid: Grid,
    profile: str | None = None,
    overrides: Iterable[Setting] = (),
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[Trial]:
    """All trials of a profile, each once, in the order of the axes."""
    return [trial for trial, _ in traced(grid, profile, overrides, overlay)]


def traced(
    grid: Grid,
    profile: str | None = None,
    overrides: Iterable[Setting] = (),
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[tuple[Trial, Origins]]:
    """The trials of `expand`, each with where its settings come from."""
    given = list(overrides)
    found = select(points(grid, profile_name(grid, profile), given), given)
    for point in found:
        override(point, given, overlay)
    return validate([point.draft for point in found])


def sweep(
    grid: Grid,
    profile: str | None,
    overrides: Iterable[Setting],
    axes: Mapping[str, Sequence[Any]],
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[Trial]:
    """All trials of a profile with further axes: each of their points is an override, in turn."""
    found = sweep_traced(grid, profile, overrides, axes, overlay)
    return [trial for trial, _ in found]


def sweep_traced(
    grid: Grid,
    profile: str | None,
    overrides: Iterable[Setting],
    axes: Mapping[str, Sequence[Any]],
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[tuple[Trial, Origins]]:
    """The trials of `sweep`, each with where its settings come from."""
    given = list(overrides)
    chosen = _axes_of(grid, profile_name(grid, profile), [*given, *dict.fromkeys(axes).items()])
    _check_number([*axes.values(), *chosen.values()])
    trials: dict[str, tuple[Trial, Origins]] = {}
    for values in product(*axes.values()):
        point = list(zip(axes, values, strict=True))
        for trial, origins in traced(grid, profile, [*given, *point], overlay):
            trials[trial.key] = trial, origins
    return list(trials.values())


def profile_name(grid: Grid, wanted: str | None) -> str:
    """The profile that is asked for, or the one that is run if none is."""
    if grid.profiles:
        name = wanted or DEFAULT_PROFILE
        if name not in grid.profiles:
            raise GridError(f"--profile: no profile `{name}`; {did_you_mean(name, grid.profiles)}")
        return name
    if wanted not in {None, NO_PROFILE}:
        raise GridError(f"--profile: the grid has no profiles, leave `{wanted}` out to run it")
    return NO_PROFILE


class Point(NamedTuple):
    """A point of a grid."""

    draft: Draft
    coordinates: list[Setting]  # on the axes


def points(grid: Grid, profile: str, overrides: Sequence[Setting]) -> list[Point]:
    """All points of the grid; an axis that is overridden has one value."""
    chosen = grid.profiles.get(profile, Profile())
    axes = _axes_of(grid, profile, overrides)
    _check_number(axes.values())
    found = []
    for values in product(*axes.values()):
        draft = Draft(defaults())
        draft.assign(grid.base.items(), "base")
        draft.assign(chosen.set.items(), f"profile {profile}")
        coordinates = list(zip(axes, values, strict=True))
        draft.assign(coordinates, "axes")
        found.append(Point(draft, coordinates))
    return found


def _axes_of(grid: Grid, profile: str, overrides: Sequence[Setting]) -> Axes:
    chosen = grid.profiles.get(profile, Profile())
    replaced = {**chosen.axes, **{name: [value] for name, value in overrides}}
    axes = {name: replaced.get(name, values) for name, values in grid.axes.items()}
    return axes | {name: values for name, values in chosen.axes.items() if name not in axes}


def _check_number(axes: Iterable[Sequence[Any]]) -> None:
    """Refuse more trials than anybody means, before they are written down."""
    number = math.prod(map(len, axes))
    if number > MAX_TRIALS:
        shown = f"{number:,}" if number < 10**15 else f"about 10^{int(math.log10(number))}"
        raise GridError(f"axes: their product is {shown} trials; at most {MAX_TRIALS:,} are run")


def select(points: list[Point], overrides: Sequence[Setting]) -> list[Point]:
    """Keep the points that have what is chosen of the compared settings.

    If none has it, all are kept: then it is not a selection but a wish for all of them.
    """
    for name, value in overrides:
        if name in SELECTING:
            has = [point for point in points if flatten(point.draft.settings).get(name) == value]
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
    point.draft.assign(choices, "--set")
    owners = tuple(name.rpartition(".")[0] + "." for name, _ in choices)
    kept = [axis for axis in point.coordinates if axis[0].startswith(owners)]
    point.draft.assign(kept, "axes")
    point.draft.change(overlay, "--overlay")
    point.draft.assign(overrides, "--set")


def validate(drafts: Iterable[Draft]) -> list[tuple[Trial, Origins]]:
    """The trials, each once."""
    trials: dict[str, tuple[Trial, Origins]] = {}
    for number, draft in enumerate(drafts, start=1):
        try:
            trial = parse_trial(draft.settings)
        except ConfigError as error:
            raise GridError(f"trial {number} of the grid:\n{error}") from None
        if trial.init_digest is not None:
            raise GridError("init_digest: give the file itself, as --init-model")
        trials.setdefault(trial.key, (trial, draft.origins))
    return list(trials.values())


def defaults() -> Settings:
    """A trial without any wishes, so that `data.num_clients=20` needs no `data.dataset`."""
    return Trial().model_dump(mode="json")
