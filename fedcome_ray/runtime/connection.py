"""A Ray cluster to work on: a private one on this machine, or a given one."""

import gc
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray._private import parameter, ray_constants, services, utils, worker
from ray._private.node import Node as RayNode
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

from fedcome_ray.console.exits import handling
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import FedcomeError, UserError, cut
from fedcome_ray.numerics import environment, processors
from fedcome_ray.runtime import session
from fedcome_ray.runtime.presence import Watch, probe
from fedcome_ray.runtime.replacing import replaced

AnyT = TypeVar("AnyT")

# Of the cluster that several launches in a row work on; None also for a Ray that the user started.
_addresses: ContextVar[str | None] = ContextVar("address", default=None)
# Of a private Ray that was begun ahead and that nobody works on yet.
_starts: ContextVar["Future[None] | None"] = ContextVar("start", default=None)

TRIALS, SHARDS = "fedcome_ray.runtime.ahead_of_trials", "fedcome_ray.runtime.ahead_of_shards"
"""What the workers of a private Ray will be needed for, by what they import."""
_PRIVATE = {
    # They end when nobody has needed them for so long.
    "num_workers_soft_limit": 0,
    "idle_worker_killing_time_threshold_ms": 10_000,
    # On a machine that is busy its processes may be late: none is given up that is at work.
    "agent_register_timeout_ms": 600_000,
    "worker_register_timeout_seconds": 600,
    "health_check_timeout_ms": 600_000,
}
"""How a private Ray differs from others."""
_IDLE = str(Path(__file__).with_name("idle.py"))
_NO_LISTENER = "--dashboard_agent_listen_port=-1"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
START_SECONDS = 600.0
"""For a private Ray to start: a busy machine takes longer than the 30 that Ray has patience."""


@contextmanager
def begun(machine: MachineOptions, ahead: str = TRIALS) -> Iterator[None]:
    """Without an address, start a private Ray beside what is done meanwhile; `connected` waits."""
    if machine.address is not None or _starts.get() is not None or ray.is_initialized():
        yield
        return
    with ThreadPoolExecutor(1, "starting Ray") as thread:
        token = _starts.set(thread.submit(_connect, machine, ahead))
        try:
            yield
        finally:
            if (start := _starts.get()) is not None and start.exception() is None:
                _leave()  # nobody came to work on it
            _starts.reset(token)


@contextmanager
def connected(
    machine: MachineOptions, console: Console, ahead: str = TRIALS
) -> Iterator[dict[str, float]]:
    """A Ray cluster to work on, and its resources; a private one is stopped afterwards."""
    address = machine.address
    start = _starts.get() if address is None else None
    if start is None and ray.is_initialized():
        if address != _addresses.get():
            raise UserError(
                f"--address: this process works on another Ray already, asked for `{address}`; "
                f"call `ray.shutdown()` first"
            )
        yield ray.cluster_resources()
        return
    console.print("starting Ray ..." if address is None else f"joining Ray at {address} ...")
    if start is None:
        _connect(machine, ahead)
    else:
        start.result()
    token = _addresses.set(address)
    watch = Watch(address, console)

    def stop(*_: object) -> None:
        watch.told()
        os.kill(os.getpid(), signal.SIGINT)

    if start is not None:  # interrupted before, Ray is still nobody's, and `begun` stops it
        _starts.set(None)
    # Ray's own handler of SIGTERM aborts the process; a stop by Ctrl-C is orderly.
    try:
        with watch, handling(signal.SIGTERM, stop):
            yield ray.cluster_resources()
    except Exception as error:
        if not isinstance(error, FedcomeError):  # Ray may be to blame, and its logs say how
            session.keep()
        raise
    finally:
        _addresses.reset(token)
        _leave(is_told=watch.is_told)


def _leave(*, is_told: bool = False) -> None:
    """Leave Ray, and stop it if it is private.

    If a reference to one of its objects is given up meanwhile, Ray ends this process, with exit
    code 1 and without a word. Tune leaves some in cycles, which Python collects at any moment and
    in any thread: so they are collected before, and nothing is while Ray stops.
    """
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        with session.ending(is_told=is_told):
            ray.shutdown()
    finally:
        if collects:
            gc.enable()


def check_address(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    if address == "auto":
        address = _found()
    if address.startswith(("ray://", "http://", "https://")):
        raise UserError(
            f"--address: a launch is a node's work, and `{cut(address)}` reaches one only from "
            f"afar; give the command to `ray job submit`, or on a node of the cluster, with "
            f"--address auto"
        )
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not _is_port(port):
        raise UserError(f"--address: expected HOST:PORT or `auto`, got `{cut(address)}`")
    try:
        probe(address)
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be one
        raise UserError(f"--address: nothing listens at `{address}`: {error}") from None
    _ask(address)


def _ask(address: str) -> None:
    """Refuse a cluster that does not let us in, or what is none; Ray would try for ever."""
    try:
        GcsClient(address=address).check_alive([], timeout=5)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"--address: the cluster at `{address}` wants its token: set RAY_AUTH_MODE=token, and "
            f"RAY_AUTH_TOKEN to what it was started with"
        ) from None
    except ray.exceptions.RayError as error:
        raise UserError(f"--address: no Ray cluster answers at `{address}`: {error}") from None


def _found() -> str:
    """What `auto` stands for: the cluster of the job, or that of the last `ray start` here.

    Ray would also take any Ray that it sees running, such as another launch's private one, and
    wait for it for ever, for want of its token.
    """
    found = os.environ.get("RAY_ADDRESS") or services.find_bootstrap_address(None)
    if found is None:
        raise UserError(
            "--address: `auto` is for jobs and nodes of a cluster; RAY_ADDRESS is not set, and no "
            "`ray start` was given here, or it was given another folder than RAY_TMPDIR"
        )
    return str(found)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 2**16


def _connect(machine: MachineOptions, ahead: str) -> None:
    """Join the cluster at the machine's address, or start a private one."""
    if machine.address is None:
        _start(machine, ahead)
    else:
        _join(_found() if machine.address == "auto" else machine.address)


def _start(machine: MachineOptions, ahead: str) -> None:
    """Start a private Ray on the loopback interface."""
    # Ray asks for a token by default: a fresh one, which only this launch's processes know.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")  # not 30 s
    own: dict[str, Any] = {"num_cpus": processors.usable_cpus(), **machine.private}
    # Workers start with it: for trials one a processor, for shards all but the first.
    cpus: int = own["num_cpus"]
    workers = cpus if ahead == TRIALS else min(cpus, (machine.num_shards or 1) - 1)
    config = {
        **_PRIVATE,
        "preload_python_modules": [ahead],
        "prestart_worker_first_driver": workers > 0,
    }
    try:
        with session.owned(), _on_loopback(), _without_onlookers(workers), _in_its_own_time():
            # Without "local", Ray would join whatever RAY_ADDRESS or an earlier `ray start` names.
            ray.init("local", include_dashboard=False, _system_config=config, **own, **_QUIET)
    except Exception as error:  # whatever: a machine too busy to start it within Ray's limits
        if isinstance(error, ValueError) and machine.private:  # more GPUs than there are
            given = ", ".join(f"--{name.replace('_', '-')}" for name in machine.private)
            raise UserError(f"{given}: {error}") from None
        reason = (str(error) or repr(error)).strip().splitlines()[0]
        raise FedcomeError(f"Ray did not start: {reason}; the same command goes on") from error


def _join(address: str) -> None:
    """Join the cluster at this address."""
    # The switches of a private Ray's processes are inherited, those of other nodes are sent.
    portable = environment.portable_switches() if environment.is_portable() else {}
    switches = {**portable, **environment.gpu_switches()}
    sent: dict[str, Any] = {"runtime_env": {"env_vars": switches}} if switches else {}
    try:
        ray.init(address=address, **sent, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"--address: no Ray cluster answers at `{address}`: {reason}") from None


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a Ray that is started meanwhile listen on the loopback interface alone.

    Asked for 127.0.0.1, Ray takes the machine's outward address instead, and then listens on all
    of them; unless it may not form clusters, which is its habit on macOS.
    """
    with replaced(ray_constants, "ENABLE_RAY_CLUSTER", False):
        yield


@contextmanager
def _without_onlookers(workers: int) -> Iterator[None]:
    """Let a Ray that is started meanwhile have no processes but those that work, so many workers.

    Its autoscaler, the server of its dashboard, the one that follows its logs and the agents that
    report to a dashboard and prepare environments have nobody to serve here; they would take most
    of its start and 250 MB. Without an agent no environment can be asked for, not even the one
    that a job or `uv run` asks for by itself: its processes have this one's.
    """
    none: dict[str, Any] = {"no_monitor": True, "include_log_monitor": False}
    params = partial(parameter.RayParams, **none)
    start: Callable[..., Any] = services.start_ray_process

    def start_process(command: list[str], kind: str, *arguments: Any, **options: Any) -> Any:
        is_raylet = kind == ray_constants.PROCESS_TYPE_RAYLET
        own = _without_agents(command, workers) if is_raylet else command
        return start(own, kind, *arguments, **options)

    with ExitStack() as stack:
        stack.enter_context(replaced(parameter, "RayParams", params))
        stack.enter_context(replaced(RayNode, "start_api_server", lambda *_, **__: None))
        stack.enter_context(replaced(services, "start_ray_process", start_process))
        # Asked by importing a web server, on the way to the raylet, for its agents' command.
        stack.enter_context(replaced(utils, "get_dashboard_dependency_error", lambda: None))
        stack.enter_context(replaced(worker, "_maybe_modify_runtime_env", lambda *_: None))
        yield


def _without_agents(command: Sequence[str], workers: int) -> list[str]:
    """The command of a raylet, which wants two agents, with two processes that do nothing."""
    idle = subprocess.list2cmdline([sys.executable, "-I", "-S", _IDLE])
    own = {
        "--dashboard_agent_command": idle,
        "--runtime_env_agent_command": idle,
        # That there is none, or the raylet would wait for agents to tell theirs.
        "--metrics-agent-port": "-1",
        "--metrics_export_port": "-1",
        "--runtime_env_agent_port": "-1",
        "--num_prestart_python_workers": str(workers),
    }
    kept = [word for word in command if word.partition("=")[0] not in own]
    return [*kept, *(f"{name}={value}" for name, value in own.items()), _NO_LISTENER]


@contextmanager
def _in_its_own_time() -> Iterator[None]:
    """Let a Ray that is started meanwhile be late, as long as its processes are there.

    And notice when it is there: Ray itself looks once a second.
    """
    get_node: Callable[..., Any] = services.get_node
    start_processes: Callable[..., Any] = RayNode.start_ray_processes
    nodes: list[RayNode] = []

    def start(node: RayNode) -> None:
        nodes.append(node)
        start_processes(node)

    def patient(address: str, node_id: str) -> Any:
        client = GcsClient(address=address)
        end = time.monotonic() + START_SECONDS
        while not client.get_all_node_info():
            if time.monotonic() > end or any(node.dead_processes() for node in nodes):
                break
            time.sleep(0.02)
        return get_node(address, node_id)

    with (
        replaced(RayNode, "start_ray_processes", start),
        replaced(services, "get_node", patient),
    ):
        yield


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
