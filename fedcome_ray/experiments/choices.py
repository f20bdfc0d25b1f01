"""What there is to choose by name in a trial, and the settings that each choice has."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from fedcome_ray import datasets, methods, models, samplers
from fedcome_ray.datasets import partitions
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Registry

CHOICES: Mapping[str, Registry[Any]] = {
    "data": datasets.REGISTRY,
    "data.partition": partitions.REGISTRY,
    "model": models.REGISTRY,
    "method": methods.REGISTRY,
    "sampler": samplers.REGISTRY,
}
"""By the dotted name of the setting."""


def description(record: type[Hyperparameters], field: str) -> str:
    """The text below a field, or below the one of the same name that it replaces."""
    bases = [base for base in record.__mro__ if issubclass(base, Hyperparameters)]
    texts = (texts_below(base).get(field, "") for base in bases)
    return " ".join(next(filter(None, texts), "").split())


@cache
def texts_below(record: type[Hyperparameters]) -> Mapping[str, str]:
    """By field. Read here, when they are wanted: pydantic would, in every process that starts."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for line in pairwise(node.body):
        match line:
            case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(ast.Constant(str(text))):
                found[field] = text
    return found


def first_sentence(text: str | None) -> str:
    """Of a docstring."""
    return " ".join((text or "").split("\n\n")[0].split())
