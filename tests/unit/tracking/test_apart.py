"""MLflow in a process of its own: the same answers, the same complaints, and no trace here."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcome_ray.errors import FedcomeError
from fedcome_ray.tracking.apart import client_apart
from fedcome_ray.tracking.client import Client
from tests.unit.tracking.stores import uri_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def apart(database: Path) -> Iterator[Client]:
    client = client_apart(uri_of(database))
    yield client
    client.close()


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_is_written_there_is_read_here(apart: Client, database: Path, tmp_path: Path) -> None:
    experiment = apart.create_experiment("small", tmp_path.as_uri(), {}).id
    made = apart.create_run(experiment, "one", {"whose": "mine"})
    apart.log(made.id, [("loss", 0.5, 1000, 3)], {"lr": 0.1}, {"more": "yes"})
    here = Client(uri_of(database))
    assert here.eldest_run(experiment, {"whose": "mine"}) == apart.run(made.id)
    assert apart.run(made.id).tags["more"] == "yes"
    assert here.last_step(made.id, "loss") == apart.last_step(made.id, "loss") == 3


def test_an_error_there_is_raised_here_with_its_cause(apart: Client) -> None:
    with pytest.raises(FedcomeError, match="there is no run nobody"):
        apart.run("nobody")
    assert apart.experiment_named("not there") is None  # and it goes on


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_process_that_died_is_told_of_and_replaced(tmp_path: Path, database: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from fedcome_ray.tracking.apart import client_apart
client = client_apart({uri_of(database)!r})
client.look()
(child,) = Path(f"/proc/{{os.getpid()}}/task/{{os.getpid()}}/children").read_text().split()
receive = client._connection.recv
os.kill(int(child), signal.SIGSTOP)  # so that it dies with a question unanswered

def kill_and_receive():
    os.kill(int(child), signal.SIGKILL)
    return receive()

client._connection.recv = kill_and_receive
try:
    client.look()
except Exception as error:
    print(error)
client.look()
print(sorted({{"mlflow", "torch"}} & set(sys.modules)))
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == ["its process ended, with exit code -9", "[]"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_it_outlives_ctrl_c_but_not_the_launch(database: Path) -> None:
    code = f"""
import time
from fedcome_ray.tracking.apart import client_apart
client = client_apart({uri_of(database)!r})
client.look()
print("ready", flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as launch:
        assert launch.stdout is not None
        assert launch.stdout.readline() == b"ready\n"
        child = child_of(launch.pid)
        assert os.getpgid(child) != os.getpgid(launch.pid)  # a terminal's Ctrl-C is for a group
        launch.send_signal(signal.SIGKILL)
    end = time.monotonic() + 30
    while is_alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(child)


def test_it_does_without_pytorch_and_ray() -> None:
    code = "import sys, fedcome_ray.tracking.apart; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"torch", "ray", "numpy", "pydantic", "mlflow"} & set(answer.stdout.split())
