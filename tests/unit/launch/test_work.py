"""What a launch says it has to do."""

from pathlib import Path

import numpy as np
import pytest

from fedcome_ray.console.options import Locations
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.launch.work import words_of
from fedcome_ray.storage.remote import Remote
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import CHECKPOINT, write_rounds
from tests.finished import finish

TRIALS = [parse_trial({"seed": seed}) for seed in range(6)]


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request("some", "quick", TRIALS, Locations(tmp_path, tracking_uri=""))


def begin(request: Request, number: int, rounds: int) -> None:
    """Leave a checkpoint of a trial."""
    folder = request.folder(TRIALS[number])
    folder.mkdir(parents=True)
    checkpoint.write(folder / CHECKPOINT, {"server.round_index": np.array(rounds)}, {})


def test_all_is_to_be_run(request_: Request) -> None:
    assert words_of(Finished.read(request_)) == "6 trials to run"


def test_what_is_finished_what_goes_on_and_what_is_left(request_: Request) -> None:
    finish(TRIALS[0], request_.folder(TRIALS[0]))
    begin(request_, 1, rounds=40)
    begin(request_, 2, rounds=40)
    expected = "1 finished, 2 go on at round 41, 3 to run"
    assert words_of(Finished.read(request_)) == expected


def test_trials_that_go_on_at_different_rounds(request_: Request) -> None:
    begin(request_, 1, rounds=40)
    assert words_of(Finished.read(request_)) == "1 goes on at round 41, 5 to run"
    begin(request_, 2, rounds=7)
    assert words_of(Finished.read(request_)) == "2 go on at rounds 8 to 41, 4 to run"


def test_a_damaged_checkpoint_is_left_to_the_trial(request_: Request) -> None:
    folder = request_.folder(TRIALS[0])
    folder.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"no checkpoint")
    assert words_of(Finished.read(request_)) == "6 trials to run"


def test_a_storage_is_asked_from_any_working_copy(tmp_path: Path) -> None:
    storage = Remote((tmp_path / "there").as_uri())
    here, elsewhere = (
        Request("some", "quick", TRIALS, Locations(tmp_path / name, "", storage=storage))
        for name in ("here", "elsewhere")
    )
    finish(TRIALS[0], here.folder(TRIALS[0]))
    begin(here, 1, rounds=1)
    rounds = [
        Round(number=number, cohort=(), metrics={}, seconds={}, time=0.0) for number in range(2)
    ]
    write_rounds(here.folder(TRIALS[1]), rounds)
    WorkingCopy(storage, here.locations.output).push()
    assert words_of(Finished.read(elsewhere)) == "1 finished, 1 goes on at round 2, 4 to run"
    assert not (elsewhere.folder(TRIALS[1]) / CHECKPOINT).exists()  # they may be large
    storage.at("trials").delete([f"{TRIALS[0].folder_name}/result.json"])
    assert words_of(Finished.read(elsewhere)) == "1 goes on at round 2, 5 to run"
