"""Settings in few words, for the names of trials: what is not the default."""

import re
from collections.abc import Container
from typing import Any

from fedcome_ray.hyperparameters import Hyperparameters, name_of


def label(settings: Hyperparameters) -> str:
    """A method or a sampler as its name and the settings that are not the default."""
    return f"{name_of(settings)}{in_brackets(settings)}"


def in_brackets(settings: Hyperparameters) -> str:
    shown = [f"{field}={value}" for field, value in unusual(settings).items()]
    return f"({','.join(shown)})" if shown else ""


def unusual(settings: Hyperparameters, but: Container[str] = ()) -> dict[str, str]:
    """The settings that are not the default, without the name of what they are settings of."""
    values = settings.model_dump(mode="json", exclude_defaults=True)
    return {
        field: _short(value)
        for field, value in values.items()
        if field != "name" and field not in but
    }


def other_choice(record: Hyperparameters, field: str) -> dict[str, str]:
    """The name of what was chosen for a field, if it is not what usually is."""
    declared = type(record).model_fields.get(field)
    if declared is None:
        return {}
    chosen = name_of(getattr(record, field))
    usual = name_of(declared.get_default(call_default_factory=True, validated_data={}))
    return {} if chosen == usual else {field: chosen}


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_short, value))
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:6]  # a digest
    if value is None:
        return "null"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
