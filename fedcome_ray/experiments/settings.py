"""Settings by dotted name, `local.lr`: assigned, chosen, written on a command line, flattened."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments import yaml_text
from fedcome_ray.experiments.yaml_text import NotYamlError

Settings = dict[str, Any]
Setting = tuple[str, Any]  # a dotted name and a value
Origins = dict[str, str]  # dotted name -> where its value comes from


def assign(settings: Settings, values: Iterable[Setting]) -> None:
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
            if place.get(part) is None:  # also a record that is unset, like `stop`
                place[part] = {}
            place = place[part]
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: `{part}` has no settings of its own, it is `{place}`")
        if is_choice(name) and place.get(last) != value:
            place.clear()
        place[last] = copy.deepcopy(value)


class Draft:
    """The settings of a trial to be, which know where they come from."""

    def __init__(self, settings: Settings, origin: str = "default") -> None:
        self.settings = settings
        self.origins: Origins = dict.fromkeys(flatten(settings), origin)

    def assign(self, values: Iterable[Setting], origin: str) -> None:
        given = list(values)
        assign(self.settings, given)
        alone: Settings = {}
        assign(alone, given)
        self._mark(flatten(alone), origin)

    def change(self, change: Callable[[Settings], None], origin: str) -> None:
        """Let something else assign what it wants; what it leaves alone keeps its origin."""
        before = flatten(copy.deepcopy(self.settings))
        change(self.settings)
        after = flatten(self.settings)
        absent = object()
        self._mark([name for name in after if after[name] != before.get(name, absent)], origin)

    def _mark(self, names: Iterable[str], origin: str) -> None:
        marked = self.origins | dict.fromkeys(names, origin)
        self.origins = {name: marked[name] for name in flatten(self.settings)}


def _precedence(name: str) -> tuple[int, bool]:
    """Settings of few parts come before those of many, and choices before others as long."""
    return name.count("."), not is_choice(name)


def is_choice(name: str) -> bool:
    """Whether this says which method, model, sampler, partition or dataset the rest is about."""
    return name.endswith((".name", ".dataset"))


def parse_overrides(texts: Iterable[str]) -> list[Setting]:
    """`a.b=value` of the command line; the value is read as YAML."""
    overrides = []
    for text in texts:
        name, value = _split("--set", "value", text)
        try:
            overrides.append((name, yaml_text.read(value)))
        except NotYamlError as error:
            raise ConfigError(f"--set {name}: `{value}` is not a YAML value: {error}") from None
    return overrides


def parse_axes(texts: Iterable[str], overrides: Iterable[Setting] = ()) -> dict[str, list[Any]]:
    """`a.b=value,value` of the command line; each value is read as YAML."""
    axes: dict[str, list[Any]] = {}
    fixed = dict(overrides)
    for text in texts:
        name, values = _split("--axis", "value,value,...", text)
        if name in axes:
            raise ConfigError(f"--axis {name}: given twice; write all its values into one")
        if name in fixed:
            raise ConfigError(f"--axis {name}: also given as --set; leave one of them out")
        axes[name] = _parse_values(name, values)
    return axes


def _parse_values(name: str, text: str) -> list[Any]:
    values = text.strip()
    if not values or values.startswith(",") or values.endswith(","):
        raise ConfigError(f"--axis {name}: expected values with commas between, got `{text}`")
    try:
        return list(yaml_text.read(f"[{values}]"))
    except NotYamlError as error:
        raise ConfigError(f"--axis {name}: `{text}` are not YAML values: {error}") from None


def _split(option: str, form: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{option}: expected `name={form}`, got `{text}`")
    return name, value


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Settings:
    """Nested settings by dotted name."""
    flat: Settings = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def written(value: Any) -> str:
    """A value on one line, as YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
