"""A private Ray: begun ahead, with no processes but those that work, and gone afterwards."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray


@pytest.fixture
def folder() -> Iterator[Path]:
    """For temporary files. Its name is short: Ray's sockets are there."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


CODE = """
import sys, time
import psutil
import ray
from rich.console import Console
from fedcome_ray.errors import UserError
from fedcome_ray.runtime import connection
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime.connection import SHARDS, begun, connected

console = Console(file=sys.stderr)
ONLOOKERS = "monitor", "dashboard", "agent"


def processes():
    return psutil.Process().children(recursive=True)


def command(process):
    try:
        return process.cmdline() or [""]
    except psutil.NoSuchProcess:
        return [""]


def onlookers():
    words = [word.lower() for process in processes() for word in command(process)]
    files = [word for word in words if not word.startswith("--")]
    return [file for file in files if any(map(file.__contains__, ONLOOKERS))]


with begun(MachineOptions()):
    with connected(MachineOptions(), console) as resources:
        print("has CPUs", resources["CPU"] >= 1)
        print("onlookers", onlookers())
        print("workers", any("ray::" in command(process)[0] for process in processes()))
        with connected(MachineOptions(), console) as again:  # as the launches of a search do
            print("the same", again.keys() == resources.keys())
        own = processes()
    print("stopped", not ray.is_initialized())
    print("left", psutil.wait_procs(own, timeout=150)[1])

with connected(MachineOptions(), console, SHARDS):
    print("workers", any("ray::" in command(process)[0] for process in processes()))

with begun(MachineOptions()):
    pass  # a mistake of the user was found
print("stopped", not ray.is_initialized())


def fail(machine, ahead):
    raise UserError("no room")


connection._connect = fail
try:
    with begun(MachineOptions()), connected(MachineOptions(), console):
        print("not here")
except UserError as error:
    print(error)
"""


def test_ray_is_begun_ahead_small_and_stopped_whoever_used_it() -> None:
    command = [sys.executable, "-c", CODE]
    # As within a job, which asks for an environment that only an agent could prepare.
    job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": {"A": "B"}}})}
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=500, check=False, env={**os.environ, **job}
    )
    assert answer.stdout.splitlines() == [
        "has CPUs True",
        "onlookers []",
        "workers True",
        "the same True",
        "stopped True",
        "left []",
        "workers False",
        "stopped True",
        "no room",
    ], answer.stderr


CYCLES = """
import gc, sys, threading
import ray
from rich.console import Console
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime.connection import connected


class Loop:
    def __init__(self, reference):
        self.reference, self.itself = reference, self


def leave_loops():
    while references:
        Loop(references.pop())


gc.set_threshold(1)  # whatever is left is collected at once
with connected(MachineOptions(), Console(file=sys.stderr)):
    references = [ray.put(number) for number in range(20_000)]
    thread = threading.Thread(target=leave_loops)
    thread.start()
thread.join()
print("alive")
"""


def test_references_that_are_collected_meanwhile_do_not_end_the_process() -> None:
    command = [sys.executable, "-c", CYCLES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


LOSS = """
import sys, time
from ray._private import worker
from rich.console import Console
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime import scratch
from fedcome_ray.runtime.connection import connected

scratch.make("try")
with connected(MachineOptions(), Console(file=sys.stderr, quiet=True)):
    worker._global_node.all_processes[sys.argv[1]][0].process.kill()
    time.sleep(600)
"""


@pytest.mark.parametrize("process", ["raylet", "gcs_server"])
def test_a_ray_that_is_gone_ends_the_process_with_a_word_and_leaves_its_logs(
    process: str, folder: Path
) -> None:
    command = [sys.executable, "-c", LOSS, process]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 1
    says = f"failed: Ray has lost its {process}, killed or out of memory; the same command goes on"
    assert says in done.stderr.splitlines()
    (log,) = folder.glob(f"ray/session_2*/logs/{process}.out")
    assert log.stat().st_size > 0
    assert list(folder.glob("fedcome-*")) == []


ERRORS = """
import sys
from rich.console import Console
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import FedcomeError
from fedcome_ray.runtime.connection import connected

try:
    with connected(MachineOptions(), Console(file=sys.stderr, quiet=True)):
        raise {"ours": FedcomeError, "unknown": RuntimeError}[sys.argv[1]]
except (FedcomeError, RuntimeError):
    pass
"""


@pytest.mark.parametrize(("error", "left"), [("ours", 0), ("unknown", 1)])
def test_a_session_stays_where_ray_may_be_to_blame(error: str, left: int, folder: Path) -> None:
    variables = {**os.environ, "TMPDIR": str(folder)}
    subprocess.run([sys.executable, "-c", ERRORS, error], timeout=300, check=True, env=variables)
    assert len(list(folder.glob("ray/session_2*"))) == left
