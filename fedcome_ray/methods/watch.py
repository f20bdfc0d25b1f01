"""A user's method, watched: what its functions raise, or return in the wrong shape, has a place.

    momentum.py:25, in correct: AttributeError: 'ClientState' object has no attribute 'foo'

Without that, a wrong shape would fail much later, somewhere in the code of this package.
"""

import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcome_ray.errors import FedcomeError, PluginError
from fedcome_ray.methods.method import AnyMethod, Method

Function = Callable[..., Any]
Check = Callable[..., str | None]
"""(the result, then the arguments) -> what is wrong with the result"""


def watched(build: Function) -> Callable[[Any], AnyMethod]:
    """The same `build`, whose method says where it fails; functions of this package stay bare."""

    def build_watched(hyperparameters: Any) -> AnyMethod:
        method: AnyMethod = _watch(build, _is_method)(hyperparameters)
        own = {name: getattr(method, name) for name in CHECKS}
        checked: dict[str, Any] = {
            name: _watch(function, CHECKS[name])
            for name, function in own.items()
            if not str(getattr(function, "__module__", "")).startswith("fedcome_ray.")
        }
        return replace(method, **checked)

    return build_watched


def _watch(function: Function, check: Check) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except FedcomeError:
            raise
        except Exception as error:
            raise PluginError(f"{_place_of_error(error, function)}: {_words(error)}") from error
        complaint = check(result, *arguments)
        if complaint is not None:
            raise PluginError(f"{_place_of(function)}: {complaint}")
        return result

    return call


def _place_of(function: Function) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return name if code is None else _place(code.co_filename, code.co_firstlineno, name)


def _place_of_error(error: Exception, function: Function) -> str:
    """The last line of the user's file on the way to the error."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is ours
    own = [frame for frame in frames if frame.filename == file]
    if not own:
        return _place_of(function)  # it could not even be called
    return _place(own[-1].filename, own[-1].lineno or 0, own[-1].name)


def _place(file: str, line: int, name: str) -> str:
    return f"{Path(file).name}:{line}, in {name}"


def _words(error: Exception) -> str:
    """The first line of an error; the others are in the log."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _is_method(result: object, _hyperparameters: object) -> str | None:
    if isinstance(result, Method):
        return None
    return f"returned {_shown(result)}, expected a `Method`"


def _is_server(result: object, params: Tensor, _num_clients: object) -> str | None:
    return _has_params(result, params)


def _is_client(result: object, like: Tensor) -> str | None:
    return _is_state(result, like.shape)


def _is_message(result: object, server: Any) -> str | None:
    return _has_params(result, server.params)


def _is_gradient(result: object, grad: Tensor, *_others: object) -> str | None:
    return _fits(result, "a tensor", grad.shape)


def _is_next_client(result: object, _received: object, client: Any, report: Any) -> str | None:
    if type(result) is not type(client):
        return f"returned {_shown(result)}, expected a `{type(client).__name__}`"
    return _is_state(result, report.update.shape)


def _is_next_server(result: object, server: Any, _cohort: object, _report: object) -> str | None:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        return f"returned {_shown(result)}, expected the server's next state and a dict of numbers"
    state, numbers = result
    for name, value in numbers.items():
        if not isinstance(value, int | float):
            return f"returned {_shown(value)} as `{name}`, expected a number"
    return _has_params(state, server.params)


CHECKS: dict[str, Check] = {
    "init_server": _is_server,
    "init_client": _is_client,
    "broadcast": _is_message,
    "correct": _is_gradient,
    "carry": _is_next_client,
    "aggregate": _is_next_server,
}


def _has_params(state: object, params: Tensor) -> str | None:
    given = getattr(state, "params", None)
    if not isinstance(given, Tensor):
        return f"returned {_shown(state)}, expected a named tuple with the tensor `params`"
    if given.shape != params.shape:
        return f"returned `params` of shape {list(given.shape)}, expected {list(params.shape)}"
    return None


def _is_state(state: object, shape: torch.Size) -> str | None:
    """Whether this is what clients keep: a named tuple of vectors."""
    if not (isinstance(state, tuple) and hasattr(state, "_fields")):
        return f"returned {_shown(state)}, expected a named tuple"
    complaints = (
        _fits(value, f"`{name}`", shape) for name, value in zip(state._fields, state, strict=True)
    )
    return next(filter(None, complaints), None)


def _fits(value: object, name: str, shape: torch.Size) -> str | None:
    """Whether this can stand where a tensor of this shape is wanted."""
    if not isinstance(value, Tensor):
        return f"returned {_shown(value)}, expected a tensor of shape {list(shape)}"
    try:
        is_fitting = torch.broadcast_shapes(value.shape, shape) == shape
    except RuntimeError:
        is_fitting = False
    if is_fitting:
        return None
    return f"returned {name} of shape {list(value.shape)}, expected {list(shape)}"


def _shown(value: object) -> str:
    return "nothing" if value is None else f"a `{type(value).__name__}`"
