"""A sweep without a grid, with methods of one's own: results, failures and plans, as JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.commands import ROOT, run

TUTORIAL = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", TUTORIAL, flags=re.DOTALL)
SMALL = ["--set", "rounds=4", "--set", "data.num_clients=10", "--set", "model.hidden=[8]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the tutorial's method, and with one that fails in a round, not when it is rehearsed."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "momentum.py").write_text(EXAMPLE)
    fails_late = "(client.memory if grad.shape[-1] < 100 else client.foo)"
    broken = EXAMPLE.replace("client.memory", fails_late).replace('"momentum"', '"broken"')
    (folder / "broken.py").write_text(broken.replace("Momentum", "Broken"))
    return folder


def sweep(folder: Path, seeds: str, methods: str, *more: str) -> Any:
    plugins = [word for name in ("momentum", "broken") for word in ("--plugin", f"{name}.py")]
    axes = ["--axis", f"seed={seeds}", "--axis", f"method.name={methods}"]
    return run("fedcome_ray.tune", *plugins, *axes, *SMALL, "--output", "out", *more, cwd=folder)


@pytest.fixture(scope="module")
def launched(folder: Path) -> Any:
    return sweep(folder, "0,1", "momentum,fedavg,broken", "--json")


@pytest.mark.ray
def test_a_sweep_needs_no_grid_and_its_results_are_json(launched: Any) -> None:
    assert launched.returncode == 1  # one method fails
    found = json.loads(launched.stdout)
    assert (found["grid"], found["profile"]) == ("sweep", "none")
    assert found["counts"] == {"finished": 4, "failed": 2}
    finished = [trial for trial in found["trials"] if trial["state"] == "finished"]
    assert [(t["settings"]["seed"], t["settings"]["method"]["name"]) for t in finished] == [
        (0, "momentum"),
        (0, "fedavg"),
        (1, "momentum"),
        (1, "fedavg"),
    ]
    assert all(0 <= trial["final"]["accuracy/test"] <= 1 for trial in finished)
    assert "6 trials to run" in launched.stderr


@pytest.mark.ray
def test_a_method_that_fails_is_named_with_its_line_and_the_rest_is_in_the_log(
    launched: Any,
) -> None:
    line = (EXAMPLE.split("client.memory")[0]).count("\n") + 1
    why = f"broken.py:{line}, in correct: AttributeError: 'ClientState' object has no attribute"
    failed = [trial for trial in json.loads(launched.stdout)["trials"] if trial["failure"]]
    assert all(trial["failure"].startswith(why) for trial in failed)
    assert f"failed broken-digits-p1-random-s0: {why}" in launched.stderr
    assert "Traceback" not in launched.stderr
    assert "Traceback" in (Path(failed[0]["folder"]) / "trial.log").read_text()


@pytest.mark.ray
def test_a_plan_of_the_rest(launched: Any, folder: Path) -> None:
    planned = sweep(folder, "0,1,2", "momentum,fedavg", "--dry-run", "--json", "--quiet")
    assert planned.returncode == 0
    assert planned.stderr == ""
    found = json.loads(planned.stdout)
    assert found["counts"] == {"finished": 4, "waiting": 2}
    assert found["axes"] == {"method": ["momentum", "fedavg"], "seed": ["0", "1", "2"]}
    assert found["cost"]["rounds"] == 8


def test_one_trial_of_it_fails_with_one_line_and_the_name_of_its_log(folder: Path) -> None:
    settings = ["--plugin", "broken.py", "--set", "method.name=broken", *SMALL]
    said = run("fedcome_ray.run", *settings, "--output", "alone", "--quiet", cwd=folder)
    assert said.returncode == 1
    what, log = said.stderr.splitlines()
    assert re.match(r"failed: broken\.py:\d+, in correct: AttributeError: ", what)
    assert "Traceback" in Path(log.strip()).read_text()


@pytest.mark.parametrize("command", ["run", "tune", "reproduce", "report", "ui", "data", "doctor"])
def test_every_command_is_listed_and_has_a_version(command: str) -> None:
    listed = run("fedcome_ray")
    assert listed.returncode == 0
    (line,) = [one for one in listed.stdout.splitlines() if f"fedcome_ray.{command} " in one]
    assert len(line) <= 80
    said = run(f"fedcome_ray.{command}", "--version")
    assert said.returncode == 0
    assert re.fullmatch(r"fedcome_ray \d+\.\d+\.\d+\n", said.stdout)


def test_a_command_after_a_space_is_told_how_it_is_written() -> None:
    said = run("fedcome_ray", "tune", "--list")
    assert said.returncode == 2
    assert "did you mean `python -m fedcome_ray.tune`?" in said.stderr
