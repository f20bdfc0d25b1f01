"""A private Ray: begun ahead, with no processes but those that work, and gone afterwards."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.ray

CODE = """
import os, sys
from pathlib import Path
import ray
from rich.console import Console
from fedcome_ray.errors import UserError
from fedcome_ray.runtime import connection
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime.connection import begun, connected

console = Console(file=sys.stderr)


def commands():
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            own = f"PPid:\\t{os.getpid()}\\n" in status.read_text()
            command = (status.parent / "cmdline").read_text()
        except OSError:
            continue
        if own:
            yield command


with begun(MachineOptions()):
    with connected(MachineOptions(), console) as resources:
        print("has CPUs", resources["CPU"] >= 1)
        print("onlookers", [c for c in commands() if "monitor" in c or "dashboard.py" in c])
        with connected(MachineOptions(), console) as again:  # as the launches of a search do
            print("the same", again.keys() == resources.keys())
    print("stopped", not ray.is_initialized())

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
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert answer.stdout.splitlines() == [
        "has CPUs True",
        "onlookers []",
        "the same True",
        "stopped True",
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
from fedcome_ray.runtime.connection import connected

with connected(MachineOptions(), Console(file=sys.stderr, quiet=True)):
    worker._global_node.all_processes[sys.argv[1]][0].process.kill()
    time.sleep(600)
"""


@pytest.mark.parametrize("process", ["raylet", "gcs_server"])
def test_a_ray_that_is_gone_ends_the_process_with_a_word(process: str) -> None:
    command = [sys.executable, "-c", LOSS, process]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    says = f"failed: Ray has lost its {process}, killed or out of memory; the same command goes on"
    assert says in done.stderr.splitlines()
