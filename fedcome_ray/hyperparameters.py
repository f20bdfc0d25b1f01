"""The base of every configuration record.

Separate from `config` so that a method's file can declare its hyper-parameters without
importing the union of all methods.
"""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Hyperparameters(BaseModel):
    """Frozen, typed, and closed: an unknown field is an error, not a silently ignored setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_values_as_numbers(cls, settings: Any) -> Any:
        """Python takes `true` for 1; whoever writes it meant something else."""
        for name, value in settings.items() if isinstance(settings, dict) else ():
            declared = cls.model_fields[name].annotation if name in cls.model_fields else bool
            if isinstance(value, bool) and bool not in (declared, *get_args(declared)):
                raise ValueError(f"`{name}` is no truth value, got `{str(value).lower()}`")
        return settings


def name_of(settings: Hyperparameters) -> str:
    """The name by which a method, a model or a sampler is chosen."""
    return str(settings.model_dump()["name"])
