"""What is wrong with settings, in lines for people."""

from typing import Any

from pydantic import BaseModel, ValidationError

from fedcome_ray.errors import cut
from fedcome_ray.hyperparameters import UNKNOWN

MOST_COMPLAINTS = 10
"""About one set of settings; more are only counted."""


def explain(error: ValidationError, record: type[BaseModel]) -> str:
    """Pydantic's complaints, one line each: field, value, what is allowed."""
    items = error.errors(include_url=False)
    lines = [_complaint(item, record) for item in items[:MOST_COMPLAINTS]]
    if len(items) > MOST_COMPLAINTS:
        lines.append(f"and {len(items) - MOST_COMPLAINTS:,} more")
    return "\n".join(lines)


def _complaint(item: Any, record: type[BaseModel]) -> str:
    path = [str(part) for part in item["loc"]]
    field = ".".join(path) or record.__name__.lower()
    if item["type"] == UNKNOWN:
        return f"{field}: {item['msg']}"
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item["input"]
    is_shown = isinstance(value, dict) or ", got `" in message or f"`{value}`" in message
    shown = "" if is_shown else f", got `{cut(str(value))}`"
    return f"{cut(field)}: {message[0].lower()}{message[1:]}{shown}"
