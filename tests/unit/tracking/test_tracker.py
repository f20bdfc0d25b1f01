"""The tracker's states, and its thread with a real SQLite store that fails and recovers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.tracking import tracker as module
from fedcome_ray.tracking.client import Client
from fedcome_ray.tracking.sqlite_client import client_of
from fedcome_ray.tracking.store import Store
from fedcome_ray.tracking.tracker import (
    REST_SECONDS,
    Open,
    Opening,
    Resting,
    State,
    Tracker,
    Unusable,
    after_failure,
    after_waiting,
)
from tests.unit.tracking.stores import TAGS, TRIAL, runs, some_rounds, steps, uri_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

STORE = cast(Store, object())
NOT_A_DATABASE = "file is not a database"
Start = Callable[[], Tracker]


@pytest.fixture
def start(database: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a tracker as a new launch would; closing twice is harmless."""
    trackers = []

    def start() -> Tracker:
        where = (uri_of(database), "small", tmp_path / "artifacts", TAGS)
        trackers.append(Tracker(*where, connect=client_of))  # here: a process takes a second
        return trackers[-1]

    yield start
    for tracker in trackers:
        tracker.close()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let trackers flush at once, and rest this long; at their end, they have this patience."""

    def hurry(rest: float, patience: float = 0.0) -> None:
        monkeypatch.setattr(module, "FLUSH_SECONDS", 0.05)
        monkeypatch.setattr(module, "REST_SECONDS", rest)
        monkeypatch.setattr(module, "LAST_REST_SECONDS", 0.05)
        monkeypatch.setattr(module, "PATIENCE_SECONDS", patience)

    return hurry


def damage(database: Path) -> bytes:
    """Make the store unusable as a full disk or a lost mount would, and return what it was."""
    content = database.read_bytes()
    database.write_bytes(b"no database any more" * 1000)
    return content


def wait_for_complaint(tracker: Tracker) -> None:
    end = time.monotonic() + 30
    while tracker.complaint is None and time.monotonic() < end:
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Opening(), Unusable("gone")),
        (Open(STORE), Resting(STORE, "gone", 10 + REST_SECONDS)),
        (Unusable("before"), Unusable("gone")),
    ],
)
def test_a_store_that_fails_rests_unless_it_never_opened(state: State, expected: State) -> None:
    assert after_failure(state, "gone", now=10) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Resting(STORE, "gone", until=10), Open(STORE)),
        (Resting(STORE, "gone", until=11), Resting(STORE, "gone", until=11)),
        (Open(STORE), Open(STORE)),
        (Opening(), Opening()),
        (Unusable("gone"), Unusable("gone")),
    ],
)
def test_only_a_rested_store_opens_again(state: State, expected: State) -> None:
    assert after_waiting(state, now=10) == expected


def test_what_is_told_is_written_in_order(start: Start, database: Path, folder: Path) -> None:
    tracker = start()
    tracker.trial_started(TRIAL)
    tracker.trial_advanced(TRIAL, some_rounds(0, 1))
    tracker.trial_advanced(TRIAL, some_rounds(2, 3))
    tracker.trial_ended(TRIAL, "FINISHED", folder)
    tracker.launch_ended({"trials": 1}, {}, {})
    tracker.close()
    assert tracker.complaint is None
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"
    assert len(runs(database, "launch")) == 1


def test_a_started_trial_shows_before_its_first_round(start: Start, database: Path) -> None:
    tracker = start()
    tracker.trial_started(TRIAL)
    tracker.close()
    assert runs(database)[0].info.status == "RUNNING"


def test_what_failed_is_written_whole_although_it_ended_before_it_began_to_be(
    start: Start, database: Path, folder: Path
) -> None:
    tracker = start()
    tracker.trial_started(TRIAL)
    tracker.trial_advanced(TRIAL, some_rounds(0, 1, 2))
    tracker.trial_ended(TRIAL, "FAILED", folder)
    tracker.close()
    (run,) = runs(database)
    assert (run.info.status, run.data.params["method.mu"]) == ("FAILED", "0.5")
    assert steps(database) == [0, 1, 2]


def test_closing_writes_what_is_left(start: Start, database: Path) -> None:
    tracker = start()
    tracker.trial_advanced(TRIAL, some_rounds(0, 1))
    tracker.close()
    assert steps(database) == [0, 1]


def test_rounds_are_written_while_the_trial_goes_on(
    start: Start, database: Path, hurry: Callable[..., None]
) -> None:
    hurry(0.0)
    tracker = start()
    tracker.check_open()
    tracker.trial_advanced(TRIAL, some_rounds(0, 1))
    end = time.monotonic() + 30
    while not (runs(database) and steps(database)) and time.monotonic() < end:
        time.sleep(0.05)
    assert steps(database) == [0, 1]


def test_a_store_that_fails_late_is_reported_and_filled_by_the_next_launch(
    start: Start, database: Path, folder: Path, hurry: Callable[..., None]
) -> None:
    hurry(60.0)
    first = start()
    first.check_open()
    content = damage(database)
    first.trial_started(TRIAL)
    first.trial_advanced(TRIAL, some_rounds(0, 1, 2, 3))
    first.trial_ended(TRIAL, "FINISHED", folder)
    first.close()
    assert NOT_A_DATABASE in (first.complaint or "")
    first.check_open()  # it was open once: no reason to hide the results
    database.write_bytes(content)
    second = start()
    second.mirror(TRIAL, folder)
    second.close()
    assert steps(database) == [0, 1, 2, 3]


def test_a_store_that_comes_back_near_the_end_gets_all_that_it_missed(
    start: Start, database: Path, folder: Path, hurry: Callable[..., None]
) -> None:
    hurry(60.0, patience=60.0)
    tracker = start()
    tracker.check_open()
    content = damage(database)
    tracker.trial_started(TRIAL)
    tracker.trial_advanced(TRIAL, some_rounds(0, 1))
    wait_for_complaint(tracker)
    tracker.trial_ended(TRIAL, "FINISHED", folder)  # it rests
    tracker.launch_ended({"trials": 1}, {}, {})
    database.write_bytes(content)
    tracker.close()
    assert tracker.complaint is None
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"
    assert len(runs(database, "launch")) == 1


def test_what_can_never_be_written_does_not_stop_the_rest(
    start: Start, database: Path, folder: Path, hurry: Callable[..., None]
) -> None:
    hurry(0.05, patience=0.5)
    (folder / "rounds.jsonl").unlink()
    (folder / "rounds.jsonl").mkdir()
    tracker = start()
    tracker.mirror(TRIAL, folder)
    tracker.launch_ended({"trials": 1}, {}, {})
    tracker.close()
    assert tracker.complaint is not None
    assert len(runs(database, "launch")) == 1


def test_rounds_told_while_the_store_rests_are_not_lost(
    start: Start, database: Path, folder: Path, hurry: Callable[..., None]
) -> None:
    hurry(0.5)
    tracker = start()
    tracker.check_open()
    content = damage(database)
    tracker.trial_advanced(TRIAL, some_rounds(0))
    wait_for_complaint(tracker)
    database.write_bytes(content)
    tracker.trial_advanced(TRIAL, some_rounds(1, 2))  # it rests
    time.sleep(1.0)
    tracker.trial_advanced(TRIAL, some_rounds(3))
    tracker.trial_ended(TRIAL, "FINISHED", folder)
    tracker.close()
    assert steps(database) == [0, 1, 2, 3]


def test_a_store_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    tracker = Tracker(uri_of(tmp_path / "mlflow.db"), "small", tmp_path, TAGS)
    with pytest.raises(UserError, match=r"--tracking-uri: cannot use .*file is not a database"):
        tracker.check_open()
    tracker.trial_started(TRIAL)
    tracker.close()
    assert NOT_A_DATABASE in (tracker.complaint or "")


def test_the_end_does_not_wait_in_silence(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.01)
    said: list[str] = []
    where = (uri_of(database), "small", tmp_path / "artifacts", TAGS)

    def connect_slowly(uri: str) -> Client:
        time.sleep(0.2)
        return client_of(uri)

    Tracker(*where, said.append, connect=connect_slowly).close()
    assert said == ["writing what is left to MLflow"]
