"""Results in object storage: a grid equals the local one, and any machine goes on with a trial.

Machines are told apart by the folder that they keep their working copies in.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fedcome_ray import Trial, report, results, run_grid, ui
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
# A trial on its own that keeps what it has after each round, and waits before the fifth for a file.
HURRIED = """
import importlib, sys, time
from pathlib import Path
from fedcome_ray.storage import lease, remote
from fedcome_ray.trials import run as trials

gate, lease_seconds, *arguments = sys.argv[1:]
lease.RENEWAL_SECONDS, lease.LEASE_SECONDS = 0.5, float(lease_seconds)
trials.CHECKPOINT_SECONDS, trials.CHECKPOINT_SHARE = 0.0, 1e9
remote.PATIENCE_SECONDS = 1.0
run_round = trials.run_round

def wait_and_run(server, *args, **kwargs):
    while server.state.round_index == 4 and not Path(gate).exists():
        time.sleep(0.05)
    return run_round(server, *args, **kwargs)

trials.run_round = wait_and_run
sys.exit(importlib.import_module("fedcome_ray.run").main(arguments))
"""


def start(machine: Path, gate: Path, address: str, lease: float = 3.0) -> subprocess.Popen[str]:
    script = [sys.executable, "-c", HURRIED, str(gate), str(lease)]
    return subprocess.Popen(
        [*script, *SET, "--set", "rounds=8", "--output", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment(), "XDG_CACHE_HOME": str(machine)},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=300)
    return process.returncode, said


def wait_for_rounds(address: str, process: subprocess.Popen[str]) -> None:
    """Until the storage has the rounds before the gate."""
    remote, end = Remote(address), time.monotonic() + 240
    while True:
        history = [name for name in remote.marks("trials") if name.endswith("rounds.jsonl")]
        if history and (remote.read(history[0]) or b"").count(b"\n") == 5:
            return
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def expected() -> torch.Tensor:
    return run_trial(Trial.model_validate({**SETTINGS, "seed": 0})).params


@pytest.mark.timeout(1200)  # four commands, which a busy machine takes its time for
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
    only = ("--grid", "sweep", "--format", "md", "--no-log")
    report = run("fedcome_ray.report", *only, "--output", address)
    assert report.returncode == 0, report.stderr
    assert "analysis/sweep.md" in Remote(address).marks("analysis")
    assert f"kept in {address}/analysis" in report.stdout
    (first,) = (one["folder"] for one in told["trials"] if one["key"] == key)
    kept = f"{address}/trials/{first.rpartition('/')[2]}"
    repeated = run("fedcome_ray.run", "--from", kept, "--output", f"{address}-again")
    assert repeated.returncode == 0, repeated.stderr
    assert torch.equal(params_in(f"{address}-again"), expected)

    everything = [done.stdout, done.stderr, again.stdout, again.stderr, report.stdout]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in everything)
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def params_in(address: str) -> torch.Tensor:
    found = results(address)
    (key,) = found
    return found[key].params


def test_another_machine_goes_on_with_a_killed_trial(
    s3: Server, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, gate = f"s3://bucket/{tmp_path.name}", tmp_path / "gate"
    killed = start(tmp_path / "here", gate, address)
    wait_for_rounds(address, killed)
    code, said = finish(start(tmp_path / "there", gate, address, lease=240.0))
    assert code == 1
    assert f"another launch is at work in {address}: process {killed.pid} on " in said
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    gate.touch()
    code, said = finish(start(tmp_path / "there", gate, address))
    assert code == 0, said
    assert "goes on at round 5 of 8" in said
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert torch.equal(params_in(address), expected)


def test_a_trial_goes_on_after_a_server_that_stayed_away(
    s3: Server, tmp_path: Path, expected: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, gate = f"s3://bucket/{tmp_path.name}", tmp_path / "gate"
    process = start(tmp_path / "here", gate, address)
    wait_for_rounds(address, process)
    with s3.away():
        gate.touch()
        code, said = finish(process)
    assert code == 1
    assert f"failed: `{address}" in said
    assert "the same command goes on" in said
    code, said = finish(start(tmp_path / "here", gate, address))
    assert code == 0, said
    assert "sign of life" not in said  # it is the copy of the one that failed
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert torch.equal(params_in(address), expected)


def test_a_search_halves_candidates_that_are_kept_in_a_storage(s3: Server, tmp_path: Path) -> None:
    address, best = f"s3://bucket/{tmp_path.name}", tmp_path / "best.yaml"
    space = {"fedavg": {"local.lr": {"low": 0.001, "high": 0.1, "log": True}}}
    grid = {"description": "Rates.", "base": {**SETTINGS, "method": {"name": "fedavg"}}}
    (tmp_path / "rates.yaml").write_text(
        yaml.safe_dump({**grid, "axes": {"seed": [0]}, "space": space})
    )
    command = ["--grid", str(tmp_path / "rates.yaml"), "--search", "asha", "--samples", "4"]
    command += ["--best", str(best), "--output", address]
    done = run("fedcome_ray.tune", *command, XDG_CACHE_HOME=str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    remote = Remote(address)
    histories = [name for name in remote.marks("trials") if name.endswith("rounds.jsonl")]
    rounds = [(remote.read(name) or b"").count(b"\n") - 1 for name in histories]
    assert sorted(rounds) == [1, 1, 3, 8]  # a ninth and a third of them, each for the best third
    (rule,) = yaml.safe_load(best.read_text())
    (winner,) = rule["evidence"]["trials"]
    assert f"trials/fedavg-digits-p0.5-random-s0-{winner}/result.json" in remote.marks("trials")


def test_everything_is_reproduced_and_known_in_python(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://bucket/{tmp_path.name}"
    only = {"rounds": 1, "participation": 1.0}
    words = [word for name, value in only.items() for word in ("--set", f"{name}={value}")]
    command = ["--only", "client_loss", *words, "--output", address]
    done = run("fedcome_ray.reproduce", *command, XDG_CACHE_HOME=str(tmp_path / "here"))
    assert done.returncode == 0, done.stderr
    assert "analysis/report.html" in Remote(address).marks("analysis")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    requests = len(s3.requests())
    found = run_grid("client_loss", set=only, output=address)  # nothing is left to run
    assert found.failures == {}
    assert list(found) == list(results(address)) != []
    assert all(len(found[key].rounds) == 2 and len(found[key].params) for key in found)
    sent = [one for one in s3.requests()[requests:] if one.startswith("PUT")]
    assert not any("/trials/" in one for one in sent)


@pytest.mark.parametrize("command", [ui.main, report.main])
def test_a_machine_without_the_store_of_mlflow_says_how_to_get_it(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    grid = [] if command is ui.main else ["--grid", "all"]
    assert command([*grid, "--output", "s3://bucket/prefix"]) == 2
    error = capsys.readouterr().err
    assert "this machine has no store of MLflow for `s3://bucket/prefix`" in error
    assert "Give the command that made them here" in error


def test_what_cannot_be_used_is_refused_in_a_line(s3: Server, tmp_path: Path) -> None:
    what = ("--axis", "seed=0,1", "--output", "s3://nobodys/prefix")
    done = run("fedcome_ray.tune", *what, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error == (
        "error: --output: cannot use `s3://nobodys/prefix`: The specified bucket does not exist"
    )
