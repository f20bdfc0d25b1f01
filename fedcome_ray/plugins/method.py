"""A user's method: watched in every round, and rehearsed on a toy block before the first."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.methods.method import AnyMethod, Method, Report
from fedcome_ray.plugins.watch import (
    Check,
    Function,
    complaint_about,
    leaves,
    same,
    shown,
    tried,
    watched_thing,
)

DIM, NUM_CLIENTS, COHORT = 7, 5, (0, 2, 3)
ROUNDING = 1e-4  # of single precision, in another order


def watched(build: Function) -> Callable[[Any], AnyMethod]:
    """The same `build`, whose method says where it fails and is known to keep to the contract."""
    return watched_thing(build, _is_method, CHECKS, rehearse)


def rehearse(method: AnyMethod) -> None:
    """Two rounds of three clients: nothing is changed in place, and a client needs no company."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32))

    server = tried(method.init_server, draw(DIM), NUM_CLIENTS)
    fresh = tried(method.init_client, draw(DIM))
    if not same(fresh, method.init_client(draw(DIM))):
        raise complaint_about(
            method.init_client, "the state of a new client depends on more than the shape of `like`"
        )
    client = type(fresh)(*(field.repeat(len(COHORT), 1) for field in fresh))
    for _ in range(2):
        received = tried(method.broadcast, server)
        if method.start is not None:
            start = _for_each(received.params, method.start, received.params, client)
            _check_finite(method.start, start)
        grad, params = draw(len(COHORT), DIM), draw(len(COHORT), DIM)
        direction = _for_each(received, method.correct, grad, params, received, client)
        _check_finite(method.correct, direction)
        report = _report(draw(len(COHORT), DIM), uses_loss=method.uses_loss)
        client = _for_each(received, method.carry, received, client, report)
        _check_finite(method.carry, client)
        server, _ = tried(method.aggregate, server, COHORT, report)
        hint = "" if method.uses_loss else "; `report.loss` is NaN without `uses_loss=True`"
        _check_finite(method.aggregate, server.params, hint)


def _report(update: Tensor, *, uses_loss: bool) -> Report:
    column = torch.tensor([[0.5], [1.0], [2.0]])
    return Report(update, column if uses_loss else column * torch.nan, 0.1 * column, 10 * column)


def _for_each(shared: Any, function: Function, *arguments: Any) -> Any:
    """What a function of the clients' side gives for a block, if it is the same for each alone.

    What is shared is the same for all of them.
    """
    block = tried(function, *arguments)
    for number in range(len(COHORT)):
        for rows in (slice(number, number + 1), number):
            own = [one if one is shared else _rows(one, rows) for one in arguments]
            alone = tried(function, *own)
            if not same(_expanded(alone, rows), _rows(_expanded(block), rows), ROUNDING):
                raise complaint_about(
                    function,
                    "gave a client other numbers in a block than alone; it must not index or "
                    "reduce the first axis, which is that of the clients",
                )
    return _expanded(block)


def _rows(value: Any, rows: int | slice) -> Any:
    """The part of some clients."""
    if isinstance(value, Report):
        return Report(*(_rows(field, rows) for field in value.fields()))
    if isinstance(value, tuple):
        return type(value)(*(_rows(field, rows) for field in value))
    return value[rows]


def _expanded(result: Any, rows: int | slice | None = None) -> Any:
    """A result that may have left out the axis of the clients, with it."""
    shape = {int: (DIM,), slice: (1, DIM), type(None): (len(COHORT), DIM)}[type(rows)]
    if isinstance(result, tuple):
        return type(result)(*(field.expand(shape) for field in result))
    return result.expand(shape)


def _check_finite(function: Function, result: Any, hint: str = "") -> None:
    if not all(np.isfinite(leaf).all() for leaf in leaves(result)):
        raise complaint_about(function, f"returned numbers that are not finite{hint}")


def _is_method(result: object, _hyperparameters: object) -> str | None:
    if isinstance(result, Method):
        return None
    return f"returned {shown(result)}, expected a `Method`"


def _is_server(result: object, params: Tensor, _num_clients: object) -> str | None:
    return _has_params(result, params)


def _is_client(result: object, like: Tensor) -> str | None:
    return _is_state(result, like)


def _is_message(result: object, server: Any) -> str | None:
    return _has_params(result, server.params)


def _is_gradient(result: object, grad: Tensor, *_others: object) -> str | None:
    return _fits(result, "a tensor", grad)


def _is_next_client(result: object, _received: object, client: Any, report: Any) -> str | None:
    if type(result) is not type(client):
        return f"returned {shown(result)}, expected a `{type(client).__name__}`"
    return _is_state(result, report.update)


def _is_next_server(result: object, server: Any, _cohort: object, _report: object) -> str | None:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        return f"returned {shown(result)}, expected the server's next state and a dict of numbers"
    state, numbers = result
    for name, value in numbers.items():
        if not isinstance(value, int | float):
            return f"returned {shown(value)} as `{name}`, expected a number"
    return _has_params(state, server.params)


def _is_start(result: object, params: Tensor, client: Any) -> str | None:
    return _fits(result, "params", client[0] if client else params)


CHECKS: dict[str, Check] = {
    "init_server": _is_server,
    "init_client": _is_client,
    "broadcast": _is_message,
    "correct": _is_gradient,
    "carry": _is_next_client,
    "aggregate": _is_next_server,
    "start": _is_start,
}


def _has_params(state: object, params: Tensor) -> str | None:
    given = getattr(state, "params", None)
    if not isinstance(given, Tensor):
        return f"returned {shown(state)}, expected a named tuple with the tensor `params`"
    if given.shape != params.shape:
        return f"returned `params` of shape {list(given.shape)}, expected {list(params.shape)}"
    return _has_dtype(given, "`params`", params)


def _is_state(state: object, like: Tensor) -> str | None:
    """Whether this is what clients keep: a named tuple of vectors."""
    if not (isinstance(state, tuple) and hasattr(state, "_fields")):
        return f"returned {shown(state)}, expected a named tuple"
    complaints = (
        _fits(value, f"`{name}`", like) for name, value in zip(state._fields, state, strict=True)
    )
    return next(filter(None, complaints), None)


def _fits(value: object, name: str, like: Tensor) -> str | None:
    """Whether this can stand for clients' vectors: what is the same for all need not be repeated.

    A single number for a whole vector is more likely a mistake.
    """
    if not isinstance(value, Tensor):
        return f"returned {shown(value)}, expected a tensor of shape {list(like.shape)}"
    is_vector = value.shape[-1:] == like.shape[-1:]
    if not is_vector or value.shape not in {like.shape, like.shape[-1:], (1, *like.shape[-1:])}:
        return f"returned {name} of shape {list(value.shape)}, expected {list(like.shape)}"
    return _has_dtype(value, name, like)


def _has_dtype(value: Tensor, name: str, like: Tensor) -> str | None:
    if value.dtype == like.dtype:
        return None
    return f"returned {name} of {_plain(value.dtype)}, expected {_plain(like.dtype)}"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
