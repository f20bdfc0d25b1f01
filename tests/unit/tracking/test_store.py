"""An MLflow experiment in a real SQLite store."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.federation.round import Round
from fedcome_ray.tracking.client import root_cause
from fedcome_ray.tracking.sqlite_client import SqliteClient
from fedcome_ray.tracking.store import Store, fetch_trial, open_store, try_open
from tests.finished import finish
from tests.unit.tracking.stores import TAGS, TRIAL, client_of, runs, some_rounds, steps, uri_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

Reopen = Callable[..., Store]


@pytest.fixture
def reopen(database: Path, tmp_path: Path) -> Reopen:
    """Open the store as a new launch would; `output` is the folder of its results."""

    def reopen(output: str = "results", log_every: int | None = None, **tags: str) -> Store:
        artifacts, all_tags = tmp_path / output / "artifacts", {**TAGS, **tags}
        return open_store(uri_of(database), "small", artifacts, all_tags, log_every=log_every)

    return reopen


def test_a_trial_is_a_run_with_its_settings_metrics_and_files(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    store = reopen()
    store.begin(TRIAL)
    assert runs(database)[0].info.status == "RUNNING"
    store.log_rounds(TRIAL, some_rounds(0, 1, 2, 3))
    store.end(TRIAL, "FINISHED", folder)
    (run,) = runs(database)
    assert run.info.status == "FINISHED"
    assert run.data.params["method.mu"] == "0.5"
    assert run.data.params["method.name"] == "fedprox"
    assert run.data.metrics["accuracy/test"] == pytest.approx(0.3)
    assert run.data.tags["fedcome.trial_key"] == TRIAL.key
    assert run.data.tags["fedcome.profile"] == "quick"
    assert run.data.tags["fedcome.command"] == "python -m this"
    files = {file.path for file in client_of(database).list_artifacts(run.info.run_id)}
    assert files == {"trial.json", "rounds.jsonl", "commands.txt", "plugins"}


def test_a_run_says_what_made_it_and_how_to_repeat_it(reopen: Reopen, database: Path) -> None:
    reopen().begin(TRIAL)
    (run,) = runs(database)
    note = run.data.tags["mlflow.note.content"]
    assert "    python -m this\n" in note
    assert f"    python -m fedcome_ray.run --from {run.info.run_id} --output again" in note
    assert f"--tracking-uri {uri_of(database)}" in note


def test_what_a_trial_is_repeated_from_is_fetched_from_its_run(
    reopen: Reopen, database: Path, folder: Path, tmp_path: Path
) -> None:
    reopen().mirror(TRIAL, folder)
    (run,) = runs(database)
    fetch_trial(uri_of(database), run.info.run_id, tmp_path / "fetched")
    files = (path for path in (tmp_path / "fetched").rglob("*") if path.is_file())
    fetched = {path.name: path.read_text() for path in files}
    assert fetched == {"trial.json": TRIAL.model_dump_json(), "mine.py": "code = 1\n"}
    assert (tmp_path / "fetched" / "plugins" / "mine" / "mine.py").is_file()


def test_a_run_that_is_no_trial_or_not_there_cannot_be_fetched(
    reopen: Reopen, database: Path, tmp_path: Path
) -> None:
    reopen().log_launch({}, {}, {})
    (run,) = runs(database, "launch")
    with pytest.raises(UserError, match=r"has no trial\.json: not the run of a trial"):
        fetch_trial(uri_of(database), run.info.run_id, tmp_path)
    with pytest.raises(UserError, match=f"--from: no run `{'0' * 32}` in"):
        fetch_trial(uri_of(database), "0" * 32, tmp_path)
    with pytest.raises(UserError, match="--from: there is no store"):
        fetch_trial(uri_of(tmp_path / "none.db"), "0" * 32, tmp_path)
    assert not (tmp_path / "none.db").exists()


class CountingClient(SqliteClient):
    """Notes what it is asked."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in {"run", "eldest_run", "create_run", "log", "log_files", "end_run"}:
            self.asked.append(name)
        return super().__getattribute__(name)


def test_a_trial_that_has_ended_is_written_in_few_requests(
    database: Path, folder: Path, tmp_path: Path
) -> None:
    client = CountingClient(uri_of(database))
    store = open_store(uri_of(database), "small", tmp_path, TAGS, lambda _: client)
    (told,) = some_rounds(1)
    told = dataclasses.replace(told, metrics={"system/load": 3.0})
    store.end(TRIAL, "FINISHED", folder, [*some_rounds(0), told])
    assert client.asked == ["eldest_run", "create_run", "log", "log_files", "end_run"]
    (run,) = runs(database)
    assert (run.data.params["method.mu"], run.data.metrics["system/load"]) == ("0.5", 3.0)
    assert "    python -m this\n" in run.data.tags["mlflow.note.content"]
    assert steps(database) == [0, 1, 2, 3]


@pytest.mark.parametrize("end", ["end", "mirror"])
def test_a_run_that_has_all_rounds_is_ended_although_nothing_is_left_to_tell(
    end: str, reopen: Reopen, database: Path, folder: Path
) -> None:
    """As if a flush came in time, or the launch died before it could end the run."""
    finish(TRIAL, folder, rounds=3)
    store = reopen()
    store.log_rounds(TRIAL, some_rounds(*range(4)))
    if end == "end":
        store.end(TRIAL, "FINISHED", folder)
    else:
        reopen().mirror(TRIAL, folder)
    (run,) = runs(database)
    assert run.info.status == "FINISHED"
    assert steps(database) == [0, 1, 2, 3]


def test_what_was_told_wholly_is_not_read_again(
    reopen: Reopen, database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(TRIAL, folder, rounds=3)
    monkeypatch.setattr("fedcome_ray.tracking.store.read_rounds", lambda _: 1 / 0)
    store = reopen()
    store.log_rounds(TRIAL, some_rounds(0, 1))
    with pytest.raises(ZeroDivisionError):
        store.end(TRIAL, "FINISHED", folder, some_rounds(3))  # without the second
    store.end(TRIAL, "FINISHED", folder, some_rounds(2, 3))
    assert steps(database) == [0, 1, 2, 3]


def test_a_run_that_was_made_and_not_described_is_described_later(
    reopen: Reopen, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SqliteClient, "log", lambda *_, **__: 1 / 0)  # as if it were killed here
        with pytest.raises(ZeroDivisionError):
            reopen().begin(TRIAL)
    reopen().begin(TRIAL)
    (run,) = runs(database)
    assert run.data.params["method.mu"] == "0.5"
    assert "mlflow.note.content" in run.data.tags


def test_a_metric_has_a_point_for_each_round_that_has_it(reopen: Reopen, database: Path) -> None:
    reopen().log_rounds(TRIAL, some_rounds(0, 1, 2, 3))
    assert steps(database, "accuracy/test") == [1, 3]


def test_rounds_that_are_told_again_are_written_once(reopen: Reopen, database: Path) -> None:
    store = reopen()
    store.log_rounds(TRIAL, some_rounds(0, 1, 2))
    store.log_rounds(TRIAL, some_rounds(1, 2, 3))
    assert steps(database) == [0, 1, 2, 3]


def test_another_launch_goes_on_in_the_same_run(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    first = reopen()
    first.log_rounds(TRIAL, some_rounds(0, 1))
    first.end(TRIAL, "KILLED", folder)
    second = reopen()
    second.log_rounds(TRIAL, some_rounds(0, 1, 2, 3))
    second.end(TRIAL, "FINISHED", folder)
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"


def test_a_finished_trial_is_mirrored_from_its_folder_once(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    store = reopen()
    store.mirror(TRIAL, folder)
    store.mirror(TRIAL, folder)
    reopen().mirror(TRIAL, folder)
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"


def test_a_trial_that_was_interrupted_is_completed_from_its_folder(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    reopen().log_rounds(TRIAL, some_rounds(0, 1))
    reopen().mirror(TRIAL, folder)
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"


def later(rounds: list[Round]) -> list[Round]:
    """The same rounds, computed somewhere else: at another time."""
    return [dataclasses.replace(one, time=one.time + 0.5) for one in rounds]


def test_launches_into_two_folders_write_the_rounds_of_a_trial_once(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    one, other = reopen("one"), reopen("other")
    one.begin(TRIAL)
    other.begin(TRIAL)
    one.log_rounds(TRIAL, some_rounds(0, 1))
    other.log_rounds(TRIAL, later(some_rounds(0, 1, 2)))
    assert steps(database) == [0, 1]
    told = later(some_rounds(3))  # since it wrote last, as it believes
    other.end(TRIAL, "FINISHED", folder, told)  # first, so it completes the run
    assert steps(database) == [0, 1, 2, 3]
    one.log_rounds(TRIAL, later(some_rounds(2, 3)))
    one.end(TRIAL, "FINISHED", folder)
    assert steps(database) == [0, 1, 2, 3]
    assert runs(database)[0].info.status == "FINISHED"


def test_a_trial_that_failed_elsewhere_can_be_taken_over(reopen: Reopen, database: Path) -> None:
    folder = database.parent / "none"
    one, other = reopen("one"), reopen("other")
    one.log_rounds(TRIAL, some_rounds(0, 1))
    one.end(TRIAL, "FAILED", folder)
    other.log_rounds(TRIAL, later(some_rounds(0, 1, 2)))
    one.end(TRIAL, "FAILED", folder)  # not its own any more
    assert steps(database) == [0, 1, 2]
    assert runs(database)[0].info.status == "RUNNING"


def test_a_run_deleted_on_mlflows_page_is_made_anew(reopen: Reopen, database: Path) -> None:
    store = reopen()
    store.log_rounds(TRIAL, some_rounds(0, 1))
    client_of(database).delete_run(runs(database)[0].info.run_id)
    store.log_rounds(TRIAL, some_rounds(2))
    assert steps(database) == [2]


def test_a_full_disk_leaves_no_half_made_store(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from fedcome_ray.tracking.store import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
folder = Path(sys.argv[1])
open_store(f"sqlite:///{folder / 'mlflow.db'}", "small", folder, {"profile": "quick"})
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode != 0
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db.lock"]
    open_store(uri_of(tmp_path / "mlflow.db"), "small", tmp_path, TAGS)


def test_rounds_are_thinned_on_request_and_the_last_is_always_there(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    reopen(log_every=2).log_rounds(TRIAL, some_rounds(0, 1))
    assert steps(database) == [0]
    store = reopen()  # goes on as it was begun
    store.log_rounds(TRIAL, later(some_rounds(0, 1, 2, 3)))
    assert steps(database) == [0, 2]
    store.end(TRIAL, "FINISHED", folder)  # after round 3 of 4, as one that stops early
    assert steps(database) == [0, 2, 3]
    reopen(log_every=2).mirror(TRIAL, folder)
    assert steps(database) == [0, 2, 3]
    assert runs(database)[0].data.tags["fedcome.log_every"] == "2"


def test_what_is_taken_by_the_clock_survives_thinning(reopen: Reopen, database: Path) -> None:
    used = {"system/load": 3.0}
    rounds = [
        dataclasses.replace(one, metrics=used) if one.number == 1 else one
        for one in some_rounds(0, 1, 2)
    ]
    reopen(log_every=2).log_rounds(TRIAL, rounds)
    assert steps(database, "system/load") == [2]


def test_an_experiment_is_not_thinned_in_two_ways(reopen: Reopen) -> None:
    reopen(log_every=3)
    reopen(log_every=3)
    says = "`small` was begun with --log-every 3, and asked for is 1; give 3, or another store"
    with pytest.raises(UserError, match=says):
        reopen(log_every=1)


def test_profiles_that_share_a_trial_have_a_run_of_it_each(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    for profile in ("mini", "paper", "paper"):
        reopen(profile=profile).mirror(TRIAL, folder)
    assert sorted(run.data.tags["fedcome.profile"] for run in runs(database)) == ["mini", "paper"]


def test_a_launch_leaves_a_run_of_its_own(reopen: Reopen, database: Path) -> None:
    texts = {"results.txt": "a table", "made_from/grid/small.yaml": "axes: {}"}
    reopen().log_launch({"trials": 3}, {"launch/finished": 2.0}, texts)
    (run,) = runs(database, "launch")
    assert run.info.status == "FINISHED"
    assert run.data.params == {"trials": "3"}
    assert run.data.metrics == {"launch/finished": 2.0}
    files = client_of(database).list_artifacts(run.info.run_id)
    assert [file.path for file in files] == ["made_from", "results.txt"]


def test_an_experiment_deleted_on_mlflows_page_comes_back(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    client_of(database).delete_experiment(reopen().experiment_id)
    reopen().mirror(TRIAL, folder)
    assert steps(database) == [0, 1, 2, 3]


def test_a_mirrored_run_says_what_produced_the_result(
    reopen: Reopen, database: Path, folder: Path
) -> None:
    computed_with = [{"cpu": "one", "portable": "false"}, {"cpu": "two", "portable": "false"}]
    commit = {"commit": "an earlier one"}
    finish(TRIAL, folder, provenance=commit, computed_with=computed_with)
    reopen().mirror(TRIAL, folder)
    tags = runs(database)[0].data.tags
    assert tags["fedcome.commit"] == "an earlier one"
    assert tags["fedcome.command"] == "python -m that"  # and not what mirrors it
    assert tags["fedcome.arithmetic.cpu"] == "one | two"
    assert tags["fedcome.arithmetic.portable"] == "false"


def test_several_processes_can_make_one_store(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from fedcome_ray.tracking.store import open_store
folder = Path(sys.argv[1])
open_store(f"sqlite:///{folder / 'mlflow.db'}", "small", folder, {"profile": "quick"})
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said


def test_trying_to_open_makes_nothing_and_says_why_it_fails(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    try_open(uri_of(database))
    assert not database.exists()
    database.write_bytes(b"no database" * 1000)
    with pytest.raises(UserError, match=r"cannot use .*file is not a database"):
        try_open(uri_of(database))


def test_the_cause_of_an_error_is_one_line() -> None:
    outer = RuntimeError("a screen\nof SQL")
    outer.__cause__ = ValueError("the disk is full\nand more")
    assert root_cause(outer) == "the disk is full"
    assert root_cause(ValueError()) == "ValueError()"
