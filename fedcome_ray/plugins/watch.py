"""A user's functions, watched: what they raise, or return wrongly, has a place.

    momentum.py:23, in correct: AttributeError: 'ClientState' object has no attribute 'foo'

Without that, a wrong shape would fail much later, somewhere in the code of this package, or not at
all. `tried` calls a function as a rehearsal, and sees what a round would not.
"""

import copy
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray.errors import FedcomeError, PluginError, UserError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Affine, Report, affine
from fedcome_ray.numerics.device import is_lost

Function = Callable[..., Any]
Check = Callable[..., str | None]
"""(the result, then the arguments) -> what is wrong with the result"""


def watch(function: Function, check: Check) -> Function:
    """The same function, whose errors and wrong results are told with their place."""
    if hasattr(function, "terms"):
        function = affine(watch(function.terms, _are_terms))

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except (FedcomeError, KeyboardInterrupt, torch.OutOfMemoryError):
            raise
        except BaseException as error:  # also `sys.exit`
            if is_lost(error):  # a GPU, by whatever ran there before
                raise
            raise PluginError(f"{_place_of_error(error, function)}: {words(error)}") from error
        complaint = check(result, *arguments)
        if complaint is not None:
            raise complaint_about(function, complaint)
        return result

    return call


def watch_all(thing: Any, checks: Mapping[str, Check]) -> dict[str, Function]:
    """The functions of a record by name, each watched; those of this package stay bare."""
    own = {name: getattr(thing, name) for name in checks}
    return {
        name: watch(function, checks[name])
        for name, function in own.items()
        if function is not None
        and not str(getattr(function, "__module__", "")).startswith("fedcome_ray.")
    }


def watched_thing(
    build: Function,
    is_thing: Check,
    checks: Mapping[str, Check],
    rehearse: Callable[[Any], None],
) -> Callable[[Any], Any]:
    """The same `build`, whose things have watched functions and pass a rehearsal first."""
    rehearsed: set[Hyperparameters] = set()

    def build_watched(config: Hyperparameters) -> Any:
        with rehearsal():
            thing = watch(build, is_thing)(config)
            thing = replace(thing, **watch_all(thing, checks))
            if config not in rehearsed:
                rehearse(thing)
                rehearsed.add(config)
        return thing

    return build_watched


@contextmanager
def rehearsal() -> Iterator[None]:
    """What goes wrong here is a mistake of the request: nothing has begun."""
    try:
        yield
    except PluginError as error:
        raise UserError(str(error)) from error


def tried(function: Function, *arguments: Any) -> Any:
    """What a function returns, if it changes nothing in place and does so again."""
    before, again = copy.deepcopy(arguments), copy.deepcopy(arguments)
    result = function(*arguments)
    names = list(inspect.signature(function).parameters)
    for name, one, other in zip(names, before, arguments, strict=False):
        if not same(one, other):
            raise complaint_about(function, f"changed `{name}` in place; make a new one instead")
    if not same(result, function(*again)):
        raise complaint_about(
            function,
            "returned something else when it was called with the same again; what it keeps belongs "
            "into the states, and what it draws must come from what it is given",
        )
    return result


def complaint_about(function: Function, text: str) -> PluginError:
    return PluginError(f"{place_of(function)}: {text}")


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two states, or results, have the same leaves, up to a share of their size."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        for a, b in pairs
    )


def leaves(value: Any) -> list[NDArray[Any]]:
    """The arrays and numbers of nested tuples and reports.

    But for generators, which are there to be used up, and for what is told to people in a mapping,
    where a time may be.
    """
    if isinstance(value, Report):
        value = value.fields()
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, np.random.Generator | Mapping):
        return []
    return [value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)]


def place_of(function: Function) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return name if code is None else _place(code.co_filename, code.co_firstlineno, name)


def _are_terms(result: object, *_arguments: object) -> str | None:
    return None if isinstance(result, Affine) else f"returned {shown(result)}, expected an `Affine`"


def words(error: BaseException) -> str:
    """The first line of an error; the others are in the log."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def shown(value: object) -> str:
    return "nothing" if value is None else f"a `{type(value).__name__}`"


def _place_of_error(error: BaseException, function: Function) -> str:
    """The last line of the user's file on the way to the error."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
    own = [frame for frame in frames if frame.filename == file]
    if not own:
        return place_of(function)  # it could not even be called
    return _place(own[-1].filename, own[-1].lineno or 0, own[-1].name)


def _place(file: str, line: int, name: str) -> str:
    return f"{Path(file).name}:{line}, in {name}"
