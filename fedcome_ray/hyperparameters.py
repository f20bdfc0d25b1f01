"""The base of every configuration record.

Separate from `experiments.trial` so that a method's file can declare its hyper-parameters without
importing the union of all methods.
"""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from fedcome_ray.errors import nearest

LARGEST_FLOAT = 3e38  # of 32 bits, in which params are

CHOOSING = ("name", "dataset")
"""Fields that say which thing the others are settings of."""
UNKNOWN = "unknown_setting"
"""The type of pydantic's complaint about a setting that there is not."""
IN_WORDS = {
    "tuple_type": "Input should be a list, as [64]",
    "model_type": "Input should be settings with their names",
}
"""Complaints of pydantic that speak of Python, by their types."""


class Hyperparameters(BaseModel):
    """Frozen, typed, and closed: an unknown field is an error, not a silently ignored setting.

    The text below a field is its description in the reference of all settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _say_what_is_allowed(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Of a setting that there is not, pydantic says only that; whoever reads it wants more."""
        try:
            return validate(settings)
        except ValidationError as error:
            items = error.errors(include_url=False)
            raise ValidationError.from_exception_data(
                cls.__name__, [_explained(cls, item) for item in items]
            ) from None

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values_as_numbers(cls, settings: Any) -> Any:
        """Python takes `true` for 1; whoever writes it meant something else."""
        for name, value in settings.items() if isinstance(settings, dict) else ():
            declared = cls.model_fields[name].annotation if name in cls.model_fields else None
            if isinstance(value, bool) and _is_number(declared):
                raise ValueError(f"`{name}` is no truth value, got `{str(value).lower()}`")
        return settings

    @model_validator(mode="after")
    def _no_numbers_too_large_to_compute_with(self) -> Self:
        for name, value in self:
            for one in value if isinstance(value, tuple | list) else [value]:
                if isinstance(one, int) and one.bit_length() > 64:
                    raise ValueError(f"`{name}` must fit into 64 bits, got {one.bit_length()}")
                if isinstance(one, float) and abs(one) > LARGEST_FLOAT:
                    raise ValueError(f"`{name}` must fit into 32 bits, so below 3e38, got `{one}`")
        return self


def _explained(record: type[BaseModel], item: ErrorDetails) -> InitErrorDetails:
    """A complaint about a record, with what is allowed if it is about an unknown setting."""
    kind = item["type"]
    message = IN_WORDS.get(kind, item["msg"])
    if kind == "extra_forbidden" and len(item["loc"]) == 1:
        chosen = [record.model_fields[one].default for one in CHOOSING if _is_fixed(record, one)]
        owner = f"{chosen[0]} has" if chosen else "there is"
        kind = UNKNOWN
        message = f"{owner} no such setting; {_allowed(record, str(item['loc'][0]))}"
    error = PydanticCustomError(kind, message)
    return InitErrorDetails(type=error, loc=item["loc"], input=item["input"])


def _allowed(record: type[BaseModel], name: str) -> str:
    """The settings of a record with their limits; only its own, if one was probably meant."""
    values = allowed_values(record)
    near = nearest(name, [*values, *(one for one in CHOOSING if one in record.model_fields)])
    explained = values if near is None else {near: values.get(near, "")}
    shown = [f"{one} ({explained[one]})" if explained.get(one) else one for one in sorted(values)]
    hint = f"did you mean `{near}`? " if near else ""
    return f"{hint}allowed: {', '.join(shown) or 'none'}"


def allowed_values(record: type[BaseModel]) -> dict[str, str]:
    """The settings of a record in words, by name, without the one that chooses the record."""
    properties = record.model_json_schema()["properties"]
    return {
        name: words(schema) for name, schema in properties.items() if not _is_fixed(record, name)
    }


def _is_fixed(record: type[BaseModel], name: str) -> bool:
    field = record.model_fields.get(name)
    return name in CHOOSING and field is not None and isinstance(field.default, str)


LIMITS = {
    "exclusiveMinimum": "above",
    "minimum": "at least",
    "exclusiveMaximum": "below",
    "maximum": "at most",
}
TYPES = {
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "string": "a text",
    "null": "null",
}


def words(schema: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words; empty where it says nothing that is short."""
    if "anyOf" in schema:
        return " or ".join(filter(None, map(words, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if "items" in schema and (each := words(schema["items"])):
        return f"a list, each {each}"
    limits = [f"{word} {schema[limit]:g}" for limit, word in LIMITS.items() if limit in schema]
    kind = TYPES.get(schema.get("type", ""), "")
    return " ".join(filter(None, [kind, " and ".join(limits)]))


def _is_number(declared: Any) -> bool:
    """Whether a type is a number, perhaps with limits or None, and nothing else."""
    if get_origin(declared) is Annotated:
        return _is_number(get_args(declared)[0])
    if get_origin(declared) in {Union, UnionType}:
        return all(_is_number(some) for some in get_args(declared) if some is not NoneType)
    return declared in {int, float}


def name_of(settings: Hyperparameters) -> str:
    """The name by which a method, a model or a sampler is chosen."""
    return str(settings.model_dump()["name"])
