"""The base of every configuration record.

Separate from `experiments.trial` so that a method's file can declare its hyper-parameters without
importing the union of all methods.
"""

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator


class Hyperparameters(BaseModel):
    """Frozen, typed, and closed: an unknown field is an error, not a silently ignored setting.

    The text below a field is its description in the reference of all settings.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values_as_numbers(cls, settings: Any) -> Any:
        """Python takes `true` for 1; whoever writes it meant something else."""
        for name, value in settings.items() if isinstance(settings, dict) else ():
            declared = cls.model_fields[name].annotation if name in cls.model_fields else None
            if isinstance(value, bool) and _is_number(declared):
                raise ValueError(f"`{name}` is no truth value, got `{str(value).lower()}`")
        return settings


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
