"""The mirror of trials in MLflow, in a real SQLite store."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.tracking import tracker as tracking
from fedcome_ray.tracking.tracker import Tracker, check_uri

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TRIAL = parse_trial({"method": {"name": "fedprox", "mu": 0.5}, "rounds": 4, "seed": 7})
TAGS = {"grid": "small", "profile": "quick", "launch": "now"}


def line(number: int) -> dict[str, Any]:
    return {
        "round": number,
        "time": 1000.0 + number,
        "metrics": {"accuracy/test": 0.1 * number} if number % 2 else {},
        "seconds": {"seconds/round": 0.5},
    }


@pytest.fixture(scope="session")
def ready_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that exists already: MLflow needs seconds to make one."""
    folder = tmp_path_factory.mktemp("store")
    tracker = Tracker(f"sqlite:///{folder / 'mlflow.db'}", "other", folder, TAGS)
    tracker.check_open()
    tracker.close()
    return folder / "mlflow.db"


@pytest.fixture
def database(ready_database: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(ready_database, tmp_path / "mlflow.db"))


Open = Callable[[], Tracker]


@pytest.fixture
def open_tracker(database: Path, tmp_path: Path) -> Iterator[Open]:
    """Open the store as a new launch would; closing twice is harmless."""
    trackers = []

    def open_tracker() -> Tracker:
        trackers.append(Tracker(f"sqlite:///{database}", "small", tmp_path / "artifacts", TAGS))
        return trackers[-1]

    yield open_tracker
    for tracker in trackers:
        tracker.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a finished trial leaves, as far as the tracker reads it."""
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "trial.json").write_text(TRIAL.model_dump_json())
    (folder / "rounds.jsonl").write_text(
        "".join(json.dumps(line(number)) + "\n" for number in range(4))
    )
    return folder


def runs(database: Path, kind: str = "trial") -> list[Any]:
    client = client_of(database)
    experiment = client.get_experiment_by_name("small")
    found = client.search_runs([experiment.experiment_id], f"tags.`fedcome.kind` = '{kind}'")
    return list(found)


def steps(database: Path, metric: str = "seconds/round") -> list[int]:
    (run,) = runs(database)
    history = client_of(database).get_metric_history(run.info.run_id, metric)
    return sorted(point.step for point in history)


def client_of(database: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{database}")


def track(tracker: Tracker, trial: Trial, *rounds: int) -> None:
    tracker.trial_started(trial)
    tracker.trial_advanced(trial, [line(number) for number in rounds])


def wait_for_problem(tracker: Tracker) -> None:
    end = time.monotonic() + 30
    while tracker.problem is None and time.monotonic() < end:
        time.sleep(0.05)


def test_a_trial_is_a_run_with_its_settings_metrics_and_files(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    tracker = open_tracker()
    track(tracker, TRIAL, 0, 1, 2, 3)
    tracker.trial_ended(TRIAL, "FINISHED", folder)
    tracker.close()
    assert tracker.problem is None
    (run,) = runs(database)
    assert run.info.status == "FINISHED"
    assert run.data.params["method.mu"] == "0.5"
    assert run.data.params["method.name"] == "fedprox"
    assert run.data.metrics["accuracy/test"] == pytest.approx(0.3)
    assert run.data.tags["fedcome.trial_key"] == TRIAL.key
    assert run.data.tags["fedcome.profile"] == "quick"
    files = {file.path for file in client_of(database).list_artifacts(run.info.run_id)}
    assert files == {"trial.json", "rounds.jsonl"}


def test_a_metric_has_a_point_for_each_round_that_has_it(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    tracker = open_tracker()
    track(tracker, TRIAL, 0, 1, 2, 3)
    tracker.close()
    assert steps(database, "accuracy/test") == [1, 3]


def test_rounds_that_are_told_again_are_written_once(open_tracker: Open, database: Path) -> None:
    tracker = open_tracker()
    track(tracker, TRIAL, 0, 1, 2)
    tracker.trial_advanced(TRIAL, [line(1), line(2), line(3)])
    tracker.close()
    assert steps(database) == [0, 1, 2, 3]


def test_another_launch_goes_on_in_the_same_run(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    first = open_tracker()
    track(first, TRIAL, 0, 1)
    first.trial_ended(TRIAL, "KILLED", folder)
    first.close()
    second = open_tracker()
    track(second, TRIAL, 0, 1, 2, 3)
    second.trial_ended(TRIAL, "FINISHED", folder)
    second.close()
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"


def test_a_finished_trial_is_mirrored_from_its_folder(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    tracker = open_tracker()
    tracker.mirror(TRIAL, folder)
    tracker.mirror(TRIAL, folder)
    tracker.close()
    assert steps(database) == [0, 1, 2, 3]


def test_profiles_that_share_a_trial_have_a_run_of_it_each(
    open_tracker: Open, database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for profile in ("mini", "paper", "paper"):
        monkeypatch.setitem(TAGS, "profile", profile)
        tracker = open_tracker()
        tracker.mirror(TRIAL, folder)
        tracker.close()
    assert sorted(run.data.tags["fedcome.profile"] for run in runs(database)) == ["mini", "paper"]


def test_a_launch_leaves_a_run_of_its_own(open_tracker: Open, database: Path) -> None:
    tracker = open_tracker()
    tracker.launch_ended({"trials": 3}, {"launch/finished": 2.0}, {"results.txt": "a table"})
    tracker.close()
    (run,) = runs(database, "launch")
    assert run.data.params == {"trials": "3"}
    assert run.data.metrics == {"launch/finished": 2.0}
    assert [file.path for file in client_of(database).list_artifacts(run.info.run_id)] == [
        "results.txt"
    ]


def damage(database: Path) -> bytes:
    """Make the store unusable as a full disk or a lost mount would, and return what it was."""
    content = database.read_bytes()
    database.write_bytes(b"no database any more" * 1000)
    return content


def test_a_store_that_fails_late_is_reported_and_filled_by_the_next_launch(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    first = open_tracker()
    first.check_open()
    content = damage(database)
    track(first, TRIAL, 0, 1, 2, 3)
    first.trial_ended(TRIAL, "FINISHED", folder)
    first.close()
    assert first.problem == "file is not a database"
    first.check_open()  # it was open once: no reason to hide the results
    database.write_bytes(content)
    second = open_tracker()
    second.mirror(TRIAL, folder)
    second.close()
    assert steps(database) == [0, 1, 2, 3]


def test_a_store_that_recovers_gets_what_it_missed(
    open_tracker: Open, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(tracking, "REST_SECONDS", 0.0)
    tracker = open_tracker()
    tracker.check_open()
    content = damage(database)
    tracker.trial_advanced(TRIAL, [line(0), line(1)])
    wait_for_problem(tracker)
    database.write_bytes(content)
    tracker.close()
    assert tracker.problem == "file is not a database"
    assert steps(database) == [0, 1]


def test_rounds_told_while_the_store_rests_are_not_lost(
    open_tracker: Open, database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(tracking, "REST_SECONDS", 0.5)
    tracker = open_tracker()
    tracker.check_open()
    content = damage(database)
    tracker.trial_advanced(TRIAL, [line(0)])
    wait_for_problem(tracker)
    database.write_bytes(content)
    tracker.trial_advanced(TRIAL, [line(1), line(2)])  # it rests
    time.sleep(1.0)
    tracker.trial_advanced(TRIAL, [line(3)])
    tracker.trial_ended(TRIAL, "FINISHED", folder)
    tracker.close()
    assert steps(database) == [0, 1, 2, 3]


def test_an_experiment_deleted_on_mlflows_page_comes_back(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    first = open_tracker()
    first.check_open()
    first.close()
    client_of(database).delete_experiment(first.experiment_id)
    second = open_tracker()
    second.mirror(TRIAL, folder)
    second.close()
    assert second.problem is None
    assert steps(database) == [0, 1, 2, 3]


def test_a_mirrored_run_says_what_produced_the_result(
    open_tracker: Open, database: Path, folder: Path
) -> None:
    computed_with = [{"cpu": "one", "portable": "false"}, {"cpu": "two", "portable": "false"}]
    earlier = {
        "final": {},
        "provenance": {"commit": "an earlier one"},
        "computed_with": computed_with,
    }
    (folder / "result.json").write_text(json.dumps(earlier))
    tracker = open_tracker()
    tracker.mirror(TRIAL, folder)
    tracker.close()
    tags = runs(database)[0].data.tags
    assert tags["fedcome.commit"] == "an earlier one"
    assert tags["fedcome.arithmetic.cpu"] == "one | two"
    assert tags["fedcome.arithmetic.portable"] == "false"


def test_several_processes_can_make_one_store(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from fedcome_ray.tracking.tracker import Tracker
folder = Path(sys.argv[1])
tracker = Tracker(f"sqlite:///{folder / 'mlflow.db'}", "small", folder, {"profile": "quick"})
tracker.check_open()
tracker.close()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said


def test_a_store_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}", "small", tmp_path, TAGS)
    with pytest.raises(UserError, match=r"--tracking-uri: cannot use .*file is not a database"):
        tracker.check_open()
    tracker.trial_started(TRIAL)
    tracker.close()


def test_a_file_that_is_no_database_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    check_uri(uri)  # it need not be there
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    with pytest.raises(UserError, match=r"not a database; move that file away"):
        check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "says"),
    [("http://127.0.0.1:1", "no MLflow server answers"), ("somewhere", "is not a URI")],
)
def test_an_address_without_a_store_is_refused(uri: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_uri(uri)
