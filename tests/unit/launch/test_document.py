"""The shape of what `--json` prints, on which programs rely."""

import json
from pathlib import Path

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch import document
from fedcome_ray.launch.cost import Cost
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.runtime.placement import Node, place
from tests.finished import finish

DONE, FAILED, STOPPED, WAITING = (parse_trial({"seed": seed}) for seed in range(4))
TRIAL = {"key", "name", "folder", "state", "rounds_done", "settings", "final", "commit", "failure"}
LAUNCH = {"grid", "profile", "launch", "output", "tracking_uri", "counts", "trials"}


def finished_of(tmp_path: Path) -> Finished:
    trials = [DONE, FAILED, STOPPED, WAITING]
    request = Request("some", "quick", trials, Locations(tmp_path, "sqlite:///here"), name="now")
    finish(DONE, request.folder(DONE), accuracy=0.75)
    return Finished.read(request)


def test_a_launch(tmp_path: Path) -> None:
    pending = {FAILED.key, STOPPED.key, WAITING.key}
    outcome = Outcome(pending, failures={FAILED.key: "it diverged"}, stopped={STOPPED.key})
    found = json.loads(json.dumps(document.of_launch(finished_of(tmp_path), outcome)))
    assert set(found) == {*LAUNCH, "was_interrupted", "complaint", "best"}
    assert found["counts"] == {"finished": 1, "failed": 1, "stopped": 1, "waiting": 1}
    assert found["was_interrupted"]
    assert all(set(trial) == TRIAL for trial in found["trials"])
    done, failed, _, waiting = found["trials"]
    assert done["final"]["accuracy/test"] == 0.75
    assert done["rounds_done"] == DONE.rounds
    assert done["settings"]["method"]["name"] == "fedavg"
    assert Path(done["folder"]).is_dir()
    assert failed["failure"] == "it diverged"
    assert failed["final"] is waiting["final"] is waiting["failure"] is None


def test_a_plan(tmp_path: Path) -> None:
    here = place(MachineOptions(), 3, [Node("a-host", 2)])
    axes = {"seed": ["0", "1", "2", "3"]}
    found = document.of_plan(finished_of(tmp_path), axes, here, Cost(rounds=300))
    assert set(json.loads(json.dumps(found))) == {*LAUNCH, "axes", "placement", "cost"}
    assert found["counts"] == {"finished": 1, "waiting": 3}
    assert found["axes"] == axes
    assert found["placement"]["trials_at_once"] == 2
    assert found["cost"]["rounds"] == 300


def test_a_trial_on_its_own(tmp_path: Path) -> None:
    finish(DONE, tmp_path, accuracy=0.75)
    found = document.of_run(DONE, tmp_path, was_finished=False, tracking_uri="sqlite:///here")
    assert set(found) == {*TRIAL, "was_finished", "tracking_uri"}
    assert found["final"]["accuracy/test"] == 0.75
