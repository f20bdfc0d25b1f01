"""Grids: from a YAML file to a list of validated trials.

A grid file is the record of an experiment and can be read alone:

    description: one line
    base: {...}              the settings that all trials share
    axes: {method: [...], seed: [...]}   trials are the product of these, in this order
    profiles:                scaled-down variants; `set` and `axes` replace what they name
      quick: {set: {rounds: 20, data: {...}}, axes: {seed: [0]}}

Names are dotted (`local.lr`). The axis `case` has values that are several settings at once.

Later wins: defaults, `base`, the profile's `set`, axes, `--overlay`, `--set`.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from fedcome_ray.errors import ConfigError, GridError, did_you_mean
from fedcome_ray.experiments.trial import Trial, explain, parse_trial
from fedcome_ray.hyperparameters import Hyperparameters

Settings = dict[str, Any]
Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]
PROFILES = ("quick", "mini", "paper")


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
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Ranges of the settings of methods, see `fedcome_ray.launch.search`."""


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


def expand(
    grid: Grid,
    profile: str,
    overrides: Iterable[tuple[str, Any]] = (),
    overlay: Callable[[Settings], None] = lambda settings: None,
) -> list[Trial]:
    """All trials of a profile, each once, in the order of the axes.

    An override of what a grid compares, like `method.name=fedprox`, selects the points that have
    it already; if none has, it is made at all of them.
    """
    if profile not in grid.profiles:
        raise GridError(
            f"--profile: no profile `{profile}`; {did_you_mean(profile, grid.profiles)}"
        )
    chosen, overrides = grid.profiles[profile], list(overrides)
    replaced = {**chosen.axes, **{name: [value] for name, value in overrides}}
    axes = {name: replaced.get(name, values) for name, values in grid.axes.items()}
    axes |= {name: values for name, values in chosen.axes.items() if name not in axes}
    points = []
    for values in product(*axes.values()):
        settings = defaults()
        assign(settings, grid.base.items())
        assign(settings, chosen.set.items())
        assign(settings, zip(axes, values, strict=True))
        points.append(settings)
    for name, value in overrides:
        if name in SELECTING:
            points = [p for p in points if flatten(p).get(name) == value] or points
    trials: dict[str, Trial] = {}
    for number, settings in enumerate(points, start=1):
        assign(settings, [(name, value) for name, value in overrides if _is_choice(name)])
        overlay(settings)
        assign(settings, overrides)
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


def assign(settings: Settings, values: Iterable[tuple[str, Any]]) -> None:
    """Set values by dotted name.

    Choosing another `name` drops the settings of the old one, which belong to something else:
    `method.name=fedavg` on `{name: fedprox, mu: 0.1}` leaves `{name: fedavg}`. So choices come
    first, whatever their order.
    """
    given = list(values)
    for name, _ in given:
        if not isinstance(name, str):
            raise ConfigError(f"`{name}` is not the name of a setting; in YAML, quote it")
    for name, value in sorted(given, key=lambda item: _precedence(item[0])):
        if name == "case":
            if not isinstance(value, dict):
                raise ConfigError(f"case: expected settings by name, got `{value}`")
            assign(settings, value.items())
            continue
        *path, last = name.split(".")
        place = settings
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: `{part}` has no settings of its own, it is `{place}`")
        if _is_choice(name) and place.get(last) != value:
            place.clear()
        place[last] = copy.deepcopy(value)


def _precedence(name: str) -> tuple[int, bool]:
    """The outer before what is inside it, and on each level choices first."""
    return name.count("."), not _is_choice(name)


def _is_choice(name: str) -> bool:
    """Whether this says which method, model, sampler, partition or dataset the rest is about."""
    return name.endswith((".name", ".dataset"))


def parse_overrides(texts: Iterable[str]) -> list[tuple[str, Any]]:
    """`a.b=value` of the command line; the value is read as YAML."""
    overrides = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set: expected `name=value`, got `{text}`")
        try:
            overrides.append((name, yaml.safe_load(value)))
        except yaml.YAMLError:
            raise ConfigError(f"--set {name}: `{value}` is not a YAML value") from None
    return overrides


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    """Nested settings by dotted name."""
    flat: Settings = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
