"""The base of every configuration record.

Separate from `config` so that a method's file can declare its hyper-parameters without
importing the union of all methods.
"""

from pydantic import BaseModel, ConfigDict


class Hyperparameters(BaseModel):
    """Frozen, typed, and closed: an unknown field is an error, not a silently ignored setting."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def name_of(settings: Hyperparameters) -> str:
    """The name by which a method, a model or a sampler is chosen."""
    return str(settings.model_dump()["name"])
