"""Several trackers of one store, here of a file: it shows who writes what as a server would."""

from contextlib import suppress
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.tracking.sqlite_client import client_of
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.tracking.trackers import Trackers, most_trackers
from tests.leftovers import rounds_in_mlflow
from tests.unit.tracking.stores import TAGS, TRIAL, runs, some_rounds, uri_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def trackers_of(database: Path, most: int, made: list[Tracker]) -> Trackers:
    where = (uri_of(database), "small", database.parent / "artifacts", TAGS)

    def make() -> Tracker:
        made.append(Tracker(*where, connect=client_of))  # here: a process takes a second
        return made[-1]

    return Trackers(make, most)


def test_each_trial_is_told_to_one_and_all_are_written(database: Path, folder: Path) -> None:
    made: list[Tracker] = []
    trials = [parse_trial({"rounds": 3, "seed": seed}) for seed in range(5)]
    with trackers_of(database, 3, made) as trackers:
        for trial in trials:
            trackers.trial_started(trial)
        for number in range(4):
            for trial in trials:
                trackers.trial_advanced(trial, some_rounds(number))
        for trial in trials:
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
    with trackers_of(tmp_path / "mlflow.db", 2, []) as trackers:
        trackers.is_patient = False
        with pytest.raises(UserError, match="file is not a database"):
            trackers.check_open()
        with pytest.raises(UserError, match="file is not a database"):
            trackers.check_usable()
    assert "file is not a database" in (trackers.complaint or "")


def test_an_error_of_the_launch_ends_all_patience(database: Path) -> None:
    made: list[Tracker] = []
    with suppress(KeyError), trackers_of(database, 2, made) as trackers:
        trackers.check_open()
        raise KeyError
    assert [tracker.is_patient for tracker in made] == [False]


@pytest.mark.parametrize(
    ("uri", "is_one"),
    [("sqlite:///file.db", True), ("http://host:5000", False), ("https://host", False)],
)
def test_files_have_one(uri: str, is_one: bool) -> None:
    assert (most_trackers(uri) == 1) is is_one
