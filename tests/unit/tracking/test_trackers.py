"""Several trackers of one store, here of a file: it shows who writes what as a server would."""

from contextlib import suppress
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.tracking.sqlite_client import client_of
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.tracking.trackers import Once, Trackers, most_trackers
from tests.leftovers import rounds_in_mlflow
from tests.servers import wait_until
from tests.unit.tracking.stores import TAGS, TRIAL, runs, some_rounds, uri_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TRIALS = [parse_trial({"rounds": 3, "seed": seed}) for seed in range(5)]


def trackers_of(database: Path, most: int, made: list[Tracker]) -> Trackers:
    where = (uri_of(database), "small", database.parent / "artifacts", TAGS)

    def make(*, beside: Tracker | None) -> Tracker:
        made.append(Tracker(*where, connect=client_of, beside=beside))  # a process takes a second
        return made[-1]

    return Trackers(make, most)


def test_each_trial_is_told_to_one_and_all_are_written(database: Path, folder: Path) -> None:
    made: list[Tracker] = []
    with trackers_of(database, 3, made) as trackers:
        for trial in TRIALS:
            trackers.trial_started(trial)
        for number in range(4):
            for trial in TRIALS:
                trackers.trial_advanced(trial, some_rounds(number))
        for trial in TRIALS:
            trackers.trial_ended(trial, "FINISHED", folder)
        trackers.check_open()
        trackers.launch_ended({"trials": 5}, {}, {})
    assert len(made) == 3
    assert trackers.complaint is None
    assert rounds_in_mlflow(uri_of(database), "small") == [("FINISHED", [0, 1, 2, 3])] * 5
    assert len(runs(database, "launch")) == 1


def test_no_more_are_made_than_there_are_trials(database: Path) -> None:
    made: list[Tracker] = []
    with trackers_of(database, 3, made) as trackers:
        trackers.trial_started(TRIAL)
        trackers.trial_advanced(TRIAL, some_rounds(0))
        trackers.check_open()
    assert len(made) == 1


def test_a_store_that_cannot_be_opened_is_refused_by_all(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    made: list[Tracker] = []
    with trackers_of(tmp_path / "mlflow.db", 2, made) as trackers:
        for trial in TRIALS:
            trackers.trial_started(trial)
        with pytest.raises(UserError, match="file is not a database"):
            trackers.check_open()
        with pytest.raises(UserError, match="file is not a database"):
            trackers.check_usable()
    assert ["file is not a database" in (tracker.complaint or "") for tracker in made] == [True] * 2


def test_an_error_of_the_launch_ends_all_patience(database: Path) -> None:
    made: list[Tracker] = []
    with suppress(KeyError), trackers_of(database, 2, made) as trackers:
        for trial in TRIALS:
            trackers.trial_started(trial)
        raise KeyError
    assert [tracker.is_patient for tracker in made] == [False, False]


def test_what_opens_once_is_never_refused_later(database: Path, folder: Path) -> None:
    made: list[Tracker] = []
    content = b""
    with trackers_of(database, 2, made) as trackers:
        trackers.trial_started(TRIALS[0])
        trackers.check_open()
        wait_until(lambda: any(run.data.params for run in runs(database)), lambda: "no run")
        content = database.read_bytes()
        database.write_bytes(b"no database any more" * 1000)
        trackers.trial_started(TRIALS[1])  # by a tracker that is made now
        trackers.check_open()
        database.write_bytes(content)
        trackers.trial_ended(TRIALS[1], "FINISHED", folder)
    assert len(made) == 2
    assert trackers.complaint is None


def test_lines_are_said_once() -> None:
    said: list[str] = []
    once = Once(said.append)
    for line in ("one", "other", "one"):
        once(line)
    assert said == ["one", "other"]


@pytest.mark.parametrize(
    ("uri", "is_one"),
    [("sqlite:///file.db", True), ("http://host:5000", False), ("https://host", False)],
)
def test_files_have_one(uri: str, is_one: bool) -> None:
    assert (most_trackers(uri) == 1) is is_one
