"""What is heard of trials reaches the display, the tracker and the outcome, once."""

import io
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from fedcome_ray import metrics
from fedcome_ray.console.options import Locations
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.listener import Listener
from fedcome_ray.launch.progress import Progress
from fedcome_ray.launch.request import Request
from fedcome_ray.trials.news import News

TRIAL, OTHER = (parse_trial({"rounds": 4, "seed": seed}) for seed in (0, 1))


class Notes:
    """A tracker that only remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def trial_started(self, trial: Trial) -> None:
        self.told.append(("started", trial.key))

    def trial_advanced(self, trial: Trial, rounds: Sequence[Round]) -> None:
        self.told.append(("advanced", trial.key, *(str(one.number) for one in rounds)))

    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None:
        self.told.append((status, trial.key))


def some_rounds(*indices: int) -> list[Round]:
    seconds = {metrics.SECONDS_ROUND: 0.5}
    return [Round(index, (), {metrics.ACCURACY: 0.5}, seconds, 0.0) for index in indices]


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def display() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def listener(tmp_path: Path, notes: Notes, display: io.StringIO) -> Listener:
    trials = [TRIAL, OTHER]
    locations = Locations(tmp_path, tracking_uri="")
    request = Request("grid", "quick", trials, locations)
    console = Console(file=display)
    progress = Progress(console, trials, {trial.key: 5 for trial in trials})
    for trial in trials:
        request.folder(trial).mkdir(parents=True)
    return Listener(request, trials, notes, progress, slots=2)


def test_a_trial_that_finishes_is_followed_to_its_end(listener: Listener, notes: Notes) -> None:
    listener.started(TRIAL)
    listener.heard(TRIAL, News(some_rounds(0, 1)))
    listener.heard(TRIAL, News(some_rounds(2, 3), is_finished=True))
    assert listener.outcome.finished == {TRIAL.key}
    assert listener.outcome.phases == {metrics.SECONDS_ROUND: 2.0}
    assert notes.told == [
        ("started", TRIAL.key),
        ("advanced", TRIAL.key, "0", "1"),
        ("advanced", TRIAL.key, "2", "3"),
        ("FINISHED", TRIAL.key),
    ]


def test_a_restart_tells_its_history_again_and_is_counted_once(listener: Listener) -> None:
    listener.started(TRIAL)
    listener.heard(TRIAL, News(some_rounds(0, 1)))
    listener.started(TRIAL)
    listener.heard(TRIAL, News(some_rounds(0, 1, 2, 3), num_restored=1, is_finished=True))
    assert listener.outcome.phases == {metrics.SECONDS_ROUND: 2.0}


def test_a_trial_that_is_heard_of_has_started(listener: Listener, notes: Notes) -> None:
    listener.heard(OTHER, News(some_rounds(0, 1)))
    assert notes.told == [("started", OTHER.key), ("advanced", OTHER.key, "0", "1")]


def test_the_end_of_a_trial_is_heard_once(listener: Listener, notes: Notes) -> None:
    for _ in range(2):  # its process died with another of its trials, and the next found it done
        listener.heard(TRIAL, News(some_rounds(0, 1, 2, 3, 4), is_finished=True))
    assert [told for told in notes.told if told[0] == "FINISHED"] == [("FINISHED", TRIAL.key)]
    assert listener.outcome.phases == {metrics.SECONDS_ROUND: 2.5}


def test_rounds_of_an_earlier_launch_are_not_counted(listener: Listener) -> None:
    listener.started(TRIAL)
    listener.heard(TRIAL, News(some_rounds(0, 1, 2, 3), num_restored=2))
    assert listener.outcome.phases == {metrics.SECONDS_ROUND: 0.5}


def test_a_failure_is_kept_with_its_cause(listener: Listener, notes: Notes) -> None:
    listener.started(TRIAL)
    listener.heard(TRIAL, News(failure="it diverged"))
    assert listener.outcome.failures == {TRIAL.key: "it diverged"}
    assert notes.told[-1] == ("FAILED", TRIAL.key)


def test_a_trial_that_pauses_where_the_launch_ends_was_stopped(
    listener: Listener, notes: Notes
) -> None:
    listener.started(TRIAL)
    listener.heard(TRIAL, News(some_rounds(0), is_paused=True))
    assert listener.outcome.stopped == {TRIAL.key}
    assert notes.told[-1] == ("KILLED", TRIAL.key)


def test_the_time_of_slots_is_counted_as_nodes_come_and_go(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()

    def after(seconds: float) -> Listener:
        monkeypatch.setattr(time, "monotonic", lambda: begun + seconds)
        return listener

    after(0).has_slots(2)
    before = listener.outcome.slot_seconds
    after(10).has_slots(6)
    after(15).has_slots(1)
    after(18).close()
    assert listener.outcome.slot_seconds - before == pytest.approx(10 * 2 + 5 * 6 + 3 * 1)


def test_what_is_left_at_the_end_was_interrupted(listener: Listener, notes: Notes) -> None:
    listener.started(TRIAL)
    listener.started(OTHER)
    listener.heard(OTHER, News(some_rounds(0), is_finished=True))
    listener.close()
    assert listener.outcome.is_interrupted
    assert notes.told[-1] == ("KILLED", TRIAL.key)


def test_time_outside_of_rounds_is_summed_by_what_was_done(listener: Listener) -> None:
    listener.heard(TRIAL, News(seconds={"start": 1.0}))
    listener.heard(OTHER, News(seconds={"start": 2.0, "finish": 0.5}))
    assert listener.outcome.outside == {"start": 3.0, "finish": 0.5}


def test_what_a_trial_survives_is_shown(listener: Listener, display: io.StringIO) -> None:
    listener.heard(TRIAL, News(some_rounds(1), incidents=["a shard died; replaced"]))
    assert "a shard died; replaced" in display.getvalue()
    assert not listener.outcome.failures
