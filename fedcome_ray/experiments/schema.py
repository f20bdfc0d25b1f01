"""The JSON schema of grid files, for editors that complete and check YAML, made from the types.

It knows names and values. What depends on several settings at once, such as a cohort larger than
its population, a dry run finds out.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, get_args

from fedcome_ray.experiments.choices import CHOICES, description
from fedcome_ray.experiments.grid import Grid, Measure, Profile
from fedcome_ray.experiments.overlay import TUNED
from fedcome_ray.experiments.reference import FILLED_IN, GROUPS, about
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Registry

Schema = dict[str, Any]


def grid_schema(value_range: type[Hyperparameters]) -> Schema:
    """What a grid file may be; `value_range` is what the settings of its `space` are drawn from."""
    settings = dict(_settings())
    values = settings | {"case": _reference("settings")}
    axes = {
        name: {"type": "array", "minItems": 1, "items": schema} for name, schema in values.items()
    }
    parts = {
        **_fields(Grid),
        "base": _reference("settings"),
        "axes": _reference("axes"),
        "profiles": {"type": "object", "additionalProperties": _reference("profile")},
        "measure": {"enum": list(get_args(Measure))},
        "space": _space(value_range),
    }
    profile = {"set": _reference("settings"), "axes": _reference("axes")}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A grid of fedcome_ray",
        **_closed(_described(parts, Grid)),
        "definitions": {
            "settings": _closed(settings),
            "axes": _closed(axes),
            "profile": _closed(_described(profile, Profile)),
            **{name: _closed(_fields(record)) for name, record in GROUPS.items()},
            **{name: _thing(name, registry) for name, registry in CHOICES.items()},
        },
    }


def _settings() -> Iterator[tuple[str, Schema]]:
    """Every setting of a trial, those that hold others too, by dotted name."""
    yield from _fields(Trial).items()
    for name, record in GROUPS.items():
        yield from _dotted(name, _fields(record))
    for name, registry in CHOICES.items():
        yield f"{name}.{registry.chosen_by}", {"anyOf": [_name(choice) for choice in registry]}
        alternatives: defaultdict[str, list[Schema]] = defaultdict(list)
        for entry in registry.values():
            for field, schema in _fields(entry.config, name).items():
                if field != registry.chosen_by and schema not in alternatives[field]:
                    alternatives[field].append(schema)
        joined = {k: v[0] if len(v) == 1 else {"anyOf": v} for k, v in alternatives.items()}
        yield from _dotted(name, joined)


def _thing(name: str, registry: Registry[Any]) -> Schema:
    """Something that is chosen by name, with the settings that things of that name have."""
    by = registry.chosen_by
    rules = [
        {
            "if": {"properties": {by: _name(choice)}, "required": [by]},
            "then": _closed(_fields(entry.config, name)),
        }
        for choice, entry in registry.items()
    ]
    names = [
        _name(choice) | {"description": about(entry.config)} for choice, entry in registry.items()
    ]
    # A dataset completes the name of its partition; nothing else is completed.
    required = [] if name == "data.partition" else [by]
    return {
        "type": "object",
        "properties": {by: {"anyOf": names}},
        "required": required,
        "allOf": rules,
    }


def _name(choice: str) -> Schema:
    """One name, or all that a path goes on: `npz:PATH`."""
    kind, colon, _ = choice.partition(":")
    return {"type": "string", "pattern": f"^{kind}:."} if colon else {"const": choice}


def _fields(record: type[Hyperparameters], name: str = "") -> dict[str, Schema]:
    """The settings of a record, whose own name is given unless it is the trial itself."""
    properties = record.model_json_schema()["properties"]
    prefix = f"{name}." if name else ""
    found = {}
    for field, schema in properties.items():
        full = f"{prefix}{field}"
        if full == "stop":
            found[field] = {"anyOf": [_reference(full), {"type": "null"}]}
        elif full in GROUPS or full in CHOICES:
            found[field] = _reference(full)
        elif field not in FILLED_IN:
            plain = {key: value for key, value in schema.items() if key != "title"}
            found[field] = plain | {"description": description(record, field)}
    return found


def _space(value_range: type[Hyperparameters]) -> Schema:
    ranges = {
        "type": "object",
        "propertyNames": {"pattern": f"^({'|'.join(prefix[:-1] for prefix in TUNED)})\\."},
        "additionalProperties": _closed(_fields(value_range)),
    }
    methods = {"enum": list(CHOICES["method"])}
    return {"type": "object", "propertyNames": methods, "additionalProperties": ranges}


def _dotted(name: str, fields: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    return ((f"{name}.{field}", schema) for field, schema in fields.items())


def _described(parts: dict[str, Schema], record: type[Hyperparameters]) -> dict[str, Schema]:
    """Draft 7 reads nothing beside a reference, so that goes one level down."""
    return {
        name: {"allOf": [schema], "description": description(record, name)}
        for name, schema in parts.items()
    }


def _closed(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}
