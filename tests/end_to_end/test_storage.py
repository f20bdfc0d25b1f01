"""Results in object storage: a grid equals the local one, and any machine goes on with a trial.

Machines are told apart by the folder that they keep their working copies in.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray import Trial, results
from fedcome_ray import run as run_trial
from fedcome_ray.storage.remote import Remote
from tests.end_to_end.commands import environment, run
from tests.s3 import SECRET, Server

pytestmark = [
    pytest.mark.ray,
    # MLflow's own use of SQLAlchemy and others.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SETTINGS: dict[str, Any] = {
    "data": {"dataset": "digits", "num_clients": 20},
    "method": {"name": "scaffold"},
    "participation": 0.5,
    "rounds": 8,
}
SET = [
    *("--set", "data.num_clients=20"),
    *("--set", "method.name=scaffold"),
    *("--set", "participation=0.5"),
]
# A trial on its own that keeps what it has after each of its slow rounds, as a long trial would.
HURRIED = """
import sys, time
from fedcome_ray import run
from fedcome_ray.storage import lease
from fedcome_ray.trials import run as trials

lease.RENEWAL_SECONDS, lease.LEASE_SECONDS = 0.5, 4.0
trials.CHECKPOINT_SECONDS, trials.CHECKPOINT_SHARE = 0.0, 1e9
pause, *arguments = sys.argv[1:]
run_round = trials.run_round
trials.run_round = lambda *args, **kwargs: (time.sleep(float(pause)), run_round(*args, **kwargs))[1]
sys.exit(run.main(arguments))
"""


def start(machine: Path, pause: float, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HURRIED, str(pause), *SET, "--set", "rounds=8", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment(), "XDG_CACHE_HOME": str(machine)},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


def wait_for(remote: Remote, ending: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240
    while not any(name.endswith(ending) for name in remote.marks("trials")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    return run_trial(Trial.model_validate({**SETTINGS, "seed": 0})).params


def test_a_grid_equals_the_local_one_and_is_known_elsewhere(
    s3: Server, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://bucket/{tmp_path.name}"
    command = [*SET, "--set", "rounds=8", "--axis", "seed=0,1", "--output", address]
    here = str(tmp_path / "here")
    done = run("fedcome_ray.tune", *command, "--json", XDG_CACHE_HOME=here)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["output"], told["counts"]) == (address, {"finished": 2})
    assert "copy here" in done.stderr

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    found = results(address)
    assert len(found) == 2
    key = found.trials.set_index("seed").loc[0, "key"]
    assert torch.equal(found[key].params, expected)
    assert list(found[key].rounds["round"]) == list(range(9))

    again = run("fedcome_ray.tune", *command)  # on that other machine
    assert again.returncode == 0, again.stderr
    assert "2 of 2 trials" in again.stdout
    assert "starting Ray" not in again.stderr
    report = run("fedcome_ray.report", "--grid", "sweep", "--output", address, "--no-log")
    assert report.returncode == 0, report.stderr
    assert "report.html" in Remote(address).marks("analysis").keys().__str__()
    repeat = f"{address}/trials/{told['trials'][0]['folder'].rpartition('/')[2]}"
    shown = run("fedcome_ray.run", "--from", repeat, "--output", str(tmp_path / "again"), "--show")
    assert "scaffold" in shown.stdout, shown.stderr

    everything = [done.stdout, done.stderr, again.stdout, again.stderr, report.stdout]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in everything)
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_another_machine_goes_on_with_a_killed_trial(
    s3: Server, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://bucket/{tmp_path.name}"
    where = ("--output", address)
    killed = start(tmp_path / "here", 0.5, *where)
    wait_for(Remote(address), "checkpoint.safetensors", killed)
    second = start(tmp_path / "there", 0.0, *where)
    code, said = finish(second)
    assert code == 1
    assert f"another launch is at work in {address}: process {killed.pid} on " in said
    assert killed.poll() is None, killed.communicate()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    code, said = finish(start(tmp_path / "there", 0.0, *where))
    assert code == 0, said
    assert "goes on at round" in said
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    found = results(address)
    (key,) = found
    assert torch.equal(found[key].params, expected)


def test_a_server_that_stays_away_ends_a_trial_that_can_go_on(
    s3: Server, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://bucket/{tmp_path.name}"
    monkeypatch.setattr(sys.modules[__name__], "HURRIED", f"{IMPATIENT}{HURRIED}")
    where = ("--output", address)
    process = start(tmp_path / "here", 0.3, *where)
    wait_for(Remote(address), "checkpoint.safetensors", process)
    with s3.away():
        code, said = finish(process)
    assert code == 1
    assert "trials go on, and it is tried again" in said
    assert f"failed: `{address}" in said
    code, said = finish(start(tmp_path / "here", 0.0, *where))
    assert code == 0, said
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    found = results(address)
    assert torch.equal(found[next(iter(found))].params, expected)


IMPATIENT = """
from fedcome_ray.storage import remote
remote.PATIENCE_SECONDS = 1.0
"""


@pytest.mark.parametrize("module", ["tune", "run"])
def test_what_cannot_be_used_is_refused_in_a_line(s3: Server, tmp_path: Path, module: str) -> None:
    grid = ["--axis", "seed=0,1"] if module == "tune" else []
    where = ("--output", "s3://nobodys/prefix")
    done = run(f"fedcome_ray.{module}", *grid, *where, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error == (
        "error: --output: cannot use `s3://nobodys/prefix`: The specified bucket does not exist"
    )
