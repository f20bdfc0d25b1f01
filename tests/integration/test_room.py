"""How many trials run at once is looked at again and again while a launch runs."""

import io
import math
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch.listener import Listener
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.request import Request
from fedcome_ray.launch.turns import Turns
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.tracking.tracker import Untracked

pytestmark = [
    pytest.mark.ray,
    # Tune's and Ray's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def test_the_launch_counts_the_slots_that_there_are_by_now(
    cluster: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedcome_ray.launch import tune_run
    from fedcome_ray.runtime.feasibility import Room
    from fedcome_ray.runtime.waiting import PATIENCE_SECONDS, Patience, pending_trials

    monkeypatch.setattr(tune_run, "LOOK_SECONDS", -math.inf)
    trials = [parse_trial({"seed": seed}) for seed in range(10 * int(cluster["CPU"]))]
    progress = Progress(Console(file=io.StringIO()), trials, {one.key: 1 for one in trials})
    request = Request("grid", "quick", trials, Locations(tmp_path, tracking_uri=""))
    room = Room(MachineOptions(), len(trials), TrialPlace(is_joint=True), lambda: None)
    tracker: Any = Untracked()
    listener = Listener(request, trials, tracker, progress, slots=1000)  # nodes have left since
    turns = Turns(trial.key for trial in trials)
    offers = tune_run.Offers(turns, 1000)
    patience = Patience(pending_trials, lambda line: None, PATIENCE_SECONDS)
    callback = tune_run.Callback(listener, trials, turns, offers, room, patience)
    before_looking = time.monotonic()
    callback.on_step_end(0, [])
    after_looking, counted_before = time.monotonic(), listener.outcome.slot_seconds
    assert offers.max_concurrent == int(cluster["CPU"])
    time.sleep(0.2)
    before_closing = time.monotonic()
    listener.close()
    counted = (listener.outcome.slot_seconds - counted_before) / cluster["CPU"]
    assert counted >= 0.999 * (before_closing - after_looking)
    assert counted <= 1.001 * (time.monotonic() - before_looking)
