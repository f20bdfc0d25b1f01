"""Clusters of several raylets, each with processes of its own, on this machine.

Where the system allows it every node has a network namespace with an address of its own, and a
bridge joins them; else all share the address of this machine.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.end_to_end.commands import environment

SUBNET = "10.213.97"
PATIENCE_SECONDS = 300
# A dead node is noticed within seconds, and a slow one is not taken for dead.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
}
# What each node has and what of it is free, by its address and port, a line for each look.
WATCH = """
import json, sys, time
import ray
from ray._private.state import available_resources_per_node
ray.init(address=sys.argv[1], log_to_driver=False)
while True:
    free = available_resources_per_node()
    nodes = {
        f"{one['NodeManagerAddress']}:{one['NodeManagerPort']}":
            [has.get(kind, 0) for kind in ("CPU", "GPU")
             for has in (one["Resources"], free.get(one["NodeID"], {}))]
        for one in ray.nodes() if one["Alive"]
    }
    print(json.dumps(nodes), flush=True)
    time.sleep(0.2)
"""


@cache
def no_namespaces_because() -> str | None:
    """Why nodes cannot have network namespaces here, None if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip`, of the package iproute2"
    try:
        with ExitStack() as stack:
            _add_bridge(f"fctry{os.getpid()}", stack)
            _add_namespace(f"fctry{os.getpid()}", f"{SUBNET}.1", f"fctry{os.getpid()}", stack)
    except subprocess.CalledProcessError as error:
        return f"a network namespace cannot be made: {error.stderr.strip()}"
    return None


def until(is_so: Callable[[], Any], what: str) -> None:
    """Wait for as long as a busy machine may need."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.1)


class Traffic(NamedTuple):
    """Bytes of a node's interface."""

    received: int
    sent: int

    def since(self, before: "Traffic") -> "Traffic":
        return Traffic(self.received - before.received, self.sent - before.sent)


class RayNode(NamedTuple):
    """One raylet with its workers; that of the head has what a cluster has once, too."""

    process: "subprocess.Popen[bytes]"
    namespace: list[str]  # that a command must begin with to run there

    def kill(self) -> None:
        """As a power cut would: everything, with no time for a word."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            own.suspend()  # else it could start others meanwhile
            for one in [*own.children(recursive=True), own]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()

    def traffic(self) -> Traffic:
        """What the interface of its namespace has counted so far."""
        table = subprocess.check_output([*self.namespace, "cat", "/proc/net/dev"], text=True)
        (numbers,) = (line.split(":")[1].split() for line in table.splitlines() if "eth0:" in line)
        return Traffic(int(numbers[0]), int(numbers[8]))


class Usage(NamedTuple):
    """What a node has, and what of it is free."""

    cpus: float
    free: float
    gpus: float
    free_gpus: float


class RayCluster:
    """Nodes that are started one by one; `address` is of the first."""

    def __init__(self, folder: Path, stack: ExitStack, variables: dict[str, str]) -> None:
        self._folder, self._stack = folder, stack
        self._name = f"fc{os.getpid()}"
        self.has_namespaces = no_namespaces_because() is None
        self.address = ""
        self.nodes: list[RayNode] = []
        self.usage: dict[str, Usage] = {}
        self.variables = {
            **environment(),
            **HEALTH,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            **variables,
        }
        if self.has_namespaces:
            _add_bridge(self._name, stack)

    def add(self, cpus: int, gpus: int = 0, **variables: str) -> RayNode:
        """Start a node, and wait until it runs; `variables` are of its environment."""
        host, namespace = self._home()
        words = [f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--node-ip-address={host}"]
        words += ["--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"]
        if self.nodes:
            words.append(f"--address={self.address}")
        else:
            port = _free_port()
            self.address = f"{host}:{port}"
            words += ["--head", f"--port={port}", "--include-dashboard=false"]
        log = self._folder / f"node{len(self.nodes)}.log"
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*namespace, *ray],
                stdout=file,
                stderr=file,
                env={**self.variables, **variables},
                process_group=0,
            )
        node = RayNode(process, namespace)
        self._stack.callback(node.kill)
        self.nodes.append(node)

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return "Ray runtime started" in log.read_text()

        until(is_up, f"node {len(self.nodes)}")
        return node

    def watch(self) -> None:
        """Keep `usage` up to date."""
        watcher = self.start("-c", WATCH, self.address)

        def read() -> None:
            assert watcher.stdout is not None
            with watcher.stdout as lines:
                for line in lines:
                    with suppress(json.JSONDecodeError):  # Ray's own words
                        self.usage = {key: Usage(*one) for key, one in json.loads(line).items()}

        threading.Thread(target=read, daemon=True).start()

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        """Python, with these words, on the first node; it is gone with the cluster."""
        process = subprocess.Popen(
            [*self.nodes[0].namespace, sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.variables, **variables},
            process_group=0,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _home(self) -> tuple[str, list[str]]:
        """The address of the next node, and how commands get there."""
        if not self.has_namespaces:
            return "127.0.0.1", []
        number = len(self.nodes) + 1
        name, host = f"{self._name}n{number}", f"{SUBNET}.{number}"
        _add_namespace(name, host, self._name, self._stack)
        return host, ["ip", "netns", "exec", name]


@contextmanager
def ray_cluster(**variables: str) -> Iterator[RayCluster]:
    """A cluster without nodes yet; nothing of it is left afterwards.

    The variables are of the environment of all its nodes.
    """
    # Short: the paths of Ray's sockets are below it, and may have 107 letters.
    scratch = tempfile.TemporaryDirectory(prefix="fc", ignore_cleanup_errors=True)
    with scratch as folder, ExitStack() as stack:
        yield RayCluster(Path(folder), stack, variables)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _add_bridge(name: str, stack: ExitStack) -> None:
    _ip("link", "add", name, "type", "bridge")
    stack.callback(_ip, "link", "del", name)
    _ip("link", "set", name, "up")


def _add_namespace(name: str, host: str, bridge: str, stack: ExitStack) -> None:
    """A network namespace with this address, on the bridge."""
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
    stack.callback(_ip, "link", "del", f"{name}v")
    _ip("link", "set", f"{name}v", "master", bridge, "up")
    for words in (["addr", "add", f"{host}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
        _ip("-n", name, *words)
    _ip("-n", name, "link", "set", "lo", "up")


def _free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port: int = some.getsockname()[1]
        return port
