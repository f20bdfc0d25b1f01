"""A trial as YAML that says where each value comes from; it can be read as the base of a grid."""

from collections.abc import Mapping
from typing import Any

from fedcome_ray.experiments.settings import Origins, is_choice, written
from fedcome_ray.experiments.trial import PLUGINS, Trial

FILLED_IN = {
    **dict.fromkeys(PLUGINS, "plugin"),
    "data.sha256": "data folder",
    "init_digest": "--init-model",
}
"""Settings that are found out, and not given."""


def text(trial: Trial, origins: Origins) -> str:
    """All settings in their order, but choices first, each with its origin as a comment."""
    lines = list(_lines(trial.model_dump(mode="json"), origins))
    width = max(len(line) for line, _ in lines)
    body = [f"{line:{width}}  # {origin}" if origin else line for line, origin in lines]
    return "\n".join([f"# {trial.name}, key {trial.key}", *body, ""])


def _lines(
    settings: Mapping[str, Any], origins: Origins, prefix: str = "", indent: str = ""
) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name in sorted(settings, key=lambda name: not is_choice(f"{prefix}{name}")):
        value = settings[name]
        full = f"{prefix}{name}"
        if isinstance(value, Mapping):
            lines.append((f"{indent}{name}:", ""))
            lines += _lines(value, origins, f"{full}.", f"{indent}  ")
        else:
            lines.append((f"{indent}{name}: {written(value)}", _origin(full, value, origins)))
    return lines


def _origin(name: str, value: Any, origins: Origins) -> str:
    """What a choice leaves open has the default of what was chosen."""
    origin = origins.get(name, "default")
    is_filled_in = origin == "default" and value is not None and name in FILLED_IN
    return FILLED_IN[name] if is_filled_in else origin
