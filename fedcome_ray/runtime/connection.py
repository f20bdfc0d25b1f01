"""A Ray cluster to work on: a private one on this machine, or a given one."""

import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

from fedcome_ray.console.exits import FAILED, INTERRUPTED, handling
from fedcome_ray.errors import UserError
from fedcome_ray.numerics import environment
from fedcome_ray.runtime.placement import Bundle

AnyT = TypeVar("AnyT")

# Of the cluster that several launches in a row work on; None also for a Ray that the user started.
_addresses: ContextVar[str | None] = ContextVar("address", default=None)


@contextmanager
def connected(address: str | None, console: Console) -> Iterator[Bundle]:
    """A Ray cluster to work on, and its resources; a private one is stopped afterwards."""
    if ray.is_initialized():
        if address != _addresses.get():
            raise UserError(
                f"--address: this process works on another Ray already, asked for `{address}`; "
                f"call `ray.shutdown()` first"
            )
        yield ray.cluster_resources()
        return
    console.print("starting Ray ..." if address is None else f"joining Ray at {address} ...")
    _connect(address)
    token = _addresses.set(address)
    is_over = threading.Event()

    def stop(*_: object) -> None:
        threading.Thread(target=_leave_without_ray, args=(is_over, console), daemon=True).start()
        os.kill(os.getpid(), signal.SIGINT)

    # Ray's own handler of SIGTERM aborts the process; a stop by Ctrl-C is orderly.
    try:
        with handling(signal.SIGTERM, stop):
            yield ray.cluster_resources()
    finally:
        is_over.set()
        _addresses.reset(token)
        ray.shutdown()


def _leave_without_ray(is_over: threading.Event, console: Console) -> None:
    """End this process if Ray is gone; Ray's client would block it for a minute, then abort.

    That is so when SIGTERM went to the whole process group, as batch systems send it. The folders
    of trials are always in a state to go on from.
    """
    address = ray.get_runtime_context().gcs_address
    while not is_over.wait(0.5):
        try:
            _probe(address)
        except OSError:
            console.show_cursor()
            console.print(INTERRUPTED)
            os._exit(FAILED)


def check_address(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(f"--address: expected HOST:PORT or `auto`, got `{address}`")
    try:
        _probe(address)
    except OSError as error:
        raise UserError(f"--address: nothing listens at `{address}`: {error}") from None


def _probe(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def _connect(address: str | None) -> None:
    """Join the cluster at this address, or start a private one on the loopback interface."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Ray asks for a token by default: a fresh one, which only this launch's processes know.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Without "local", Ray would join whatever RAY_ADDRESS or an earlier `ray start` names.
        ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        return
    try:
        # The switches of a private Ray's processes are inherited, those of other nodes are sent.
        if environment.is_portable():
            quiet["runtime_env"] = {"env_vars": environment.portable_switches()}
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"--address: no Ray cluster answers at `{address}`: {reason}") from None


def on_every_node(function: Callable[..., AnyT], *arguments: Any) -> list[AnyT]:
    """What a function answers on each node of the cluster."""
    return on_nodes([node["NodeID"] for node in ray.nodes() if node["Alive"]], function, *arguments)


def on_nodes(nodes: Sequence[str], function: Callable[..., AnyT], *arguments: Any) -> list[AnyT]:
    """What a function answers on these nodes, in processes that end with it: they may have looked
    at a GPU, and would keep some of its memory.
    """
    calls = [
        ray.remote(max_calls=1)(function)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, False))
        .remote(*arguments)
        for node in nodes
    ]
    try:
        return list(ray.get(calls))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
