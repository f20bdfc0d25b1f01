"""What is written to MLflow's tables is what MLflow would have written, and reads the same."""

import math
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.errors import FedcomeError
from fedcome_ray.tracking import sqlite_client
from fedcome_ray.tracking.client import Client, Point
from fedcome_ray.tracking.sqlite_client import SqliteClient, client_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

POINTS = [
    (name, value + step, 1_700_000_000_000 + step, step)
    for step in range(5)
    for name, value in {"accuracy/test": 0.5, "loss/test": -1e-3, "seconds/round": 3}.items()
]
ODD = [
    ("odd", math.nan, 1_700_000_000_000, 0),
    ("odd", math.inf, 1_700_000_000_001, 1),
    ("odd", -math.inf, 1_700_000_000_001, 1),
    ("other", -math.inf, 1_700_000_000_001, 1),
    ("last is nan", 1.0, 1_700_000_000_001, 1),
    ("last is nan", math.nan, 1_700_000_000_001, 2),
]
TAGS = {"fedcome.trial_key": "abc", "fedcome.profile": "quick", "with '": 'a `quoted` "one"'}
EXPERIMENT = "some"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a store") / "mlflow.db"


@pytest.fixture(scope="module")
def theirs(file: Path) -> Client:
    client = Client(f"sqlite:///{file}")
    client.create_experiment(EXPERIMENT, (file.parent / "kept here").as_uri(), {})
    return client


@pytest.fixture(scope="module")
def ours(file: Path, theirs: Client) -> Client:
    return client_of(f"sqlite:///{file}")


def experiment_of(client: Client) -> str:
    found = client.experiment_named(EXPERIMENT)
    assert found is not None
    return found.id


def rows_of(file: Path, run_id: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that the tables have of a run, but for what must differ."""
    with closing(sqlite3.connect(file)) as store:
        found = {}
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            names = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            rows = store.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (run_id,))
            records = [dict(zip(names, row, strict=True)) for row in rows]
            found[table] = sorted(tuple(_comparable(one, run_id).items()) for one in records)
    return found


def _comparable(record: dict[str, Any], run_id: str) -> dict[str, Any]:
    times = {"start_time", "end_time"} & record.keys()
    known = {name: record[name] is not None for name in times}
    return {
        name: value.replace(run_id, "ID") if isinstance(value, str) else value
        for name, value in (record | known).items()
    }


def test_a_file_has_a_client_of_its_own(file: Path) -> None:
    assert isinstance(client_of(f"sqlite:///{file}"), SqliteClient)
    assert type(client_of("http://127.0.0.1:5000")) is Client


@pytest.mark.parametrize(
    "batches",
    [
        [POINTS],
        [POINTS[:7], POINTS[7:]],
        [POINTS[7:], POINTS[:7]],  # an older one must not replace the newest
        [POINTS, POINTS],  # as after a failure
        [ODD],
        [ODD[:1], ODD[1:]],
        [POINTS[::-1]],
    ],
)
def test_metrics_are_those_that_mlflow_writes(
    batches: list[list[Point]], ours: Client, theirs: Client, file: Path
) -> None:
    runs = []
    for client in (ours, theirs):
        runs.append(client.create_run(experiment_of(theirs), "one", {}))
        for points in batches:
            client.log(runs[-1].id, points)
    first, second = runs
    assert rows_of(file, first.id) == rows_of(file, second.id)
    steps = {step for points in batches for metric, _, _, step in points if metric == "odd"}
    assert ours.last_step(first.id, "odd") == theirs.last_step(first.id, "odd")
    assert ours.last_step(first.id, "odd") == max(steps, default=-1)


def test_a_whole_run_is_the_one_that_mlflow_writes(
    ours: Client, theirs: Client, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "result.json").write_text("{}")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "own.py").write_text("")
    runs = []
    for client in (ours, theirs):
        run = client.create_run(experiment_of(theirs), "a name", TAGS)
        client.log(run.id, POINTS, {"method.mu": 0.5, "long": "x" * 7000}, {"note": "y" * 9000})
        client.log(run.id, (), {"method.mu": 0.5}, {"note": "another"})  # as after a failure
        client.log_files(run.id, [str(tmp_path / name) for name in ("result.json", "plugins")])
        client.end_run(run.id, "FINISHED")
        client.mark_running(run.id)
        runs.append(run)
    first, second = runs
    assert rows_of(file, first.id) == rows_of(file, second.id)
    for client in (ours, theirs):
        one, other = (client.run(run.id)._replace(id="ID") for run in runs)
        assert one == other
        assert one.tags["note"] == "another"
        assert client.files(first.id) == client.files(second.id) == {"result.json", "plugins"}

    assert ours.run(first.id) == theirs.run(first.id)
    kept = [{*(path.name for path in file.parent.glob(f"*/{run.id}/**/*"))} for run in runs]
    assert kept[0] == kept[1] == {"artifacts", "result.json", "plugins", "own.py"}


def test_runs_are_found_as_mlflow_finds_them(
    ours: Client, theirs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in the millisecond of another: among those the id decides.
    monkeypatch.setattr(sqlite_client, "_now", count(1_700_000_000_000).__next__)
    experiment = experiment_of(theirs)
    tags = {"fedcome.trial_key": "found", "fedcome.profile": "quick"}
    assert ours.eldest_run(experiment, tags) is None
    deleted, first, _ = (ours.create_run(experiment, "one", tags).id for _ in range(3))
    ours.create_run(experiment, "one", tags | {"fedcome.profile": "paper"})
    theirs.delete_run(deleted)
    for client in (ours, theirs):
        assert client.eldest_run(experiment, tags) == ours.run(first)
        assert client.eldest_run("0", tags) is None
        assert not client.run(deleted).is_there


def test_a_run_that_was_deleted_is_refused(ours: Client, theirs: Client, file: Path) -> None:
    run_id = ours.create_run(experiment_of(theirs), "one", {}).id
    theirs.delete_run(run_id)
    before = rows_of(file, run_id)
    for write in (
        lambda: ours.log(run_id, POINTS),
        lambda: ours.end_run(run_id, "FINISHED"),
        lambda: ours.mark_running(run_id),
    ):
        with pytest.raises(FedcomeError, match="was deleted"):
            write()
    assert rows_of(file, run_id) == before


def test_no_run_is_made_in_an_experiment_that_is_gone(
    ours: Client, theirs: Client, file: Path
) -> None:
    gone = theirs.create_experiment("gone", file.parent.as_uri(), {}).id
    theirs._mlflow.delete_experiment(gone)
    for experiment in (gone, "1234"):
        with pytest.raises(FedcomeError, match=f"the experiment {experiment} was deleted"):
            ours.create_run(experiment, "one", {"fedcome.trial_key": "nowhere"})
    with closing(sqlite3.connect(file)) as store:
        tags = store.execute("SELECT 1 FROM tags WHERE value = 'nowhere'").fetchall()
    assert tags == []


def test_a_file_that_cannot_be_copied_leaves_the_one_that_was_there(
    ours: Client, theirs: Client, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "result.json"
    source.write_text("old")
    run_id = ours.create_run(experiment_of(theirs), "one", {}).id
    ours.log_files(run_id, [str(source)])

    def fail(_: Path, target: Path) -> None:
        Path(target).write_text("ha")
        raise OSError("disk full")

    monkeypatch.setattr("shutil.copy2", fail)
    with pytest.raises(OSError, match="disk full"):
        ours.log_files(run_id, [str(source)])
    (kept,) = file.parent.glob(f"*/{run_id}/artifacts/*")
    assert kept.read_text() == "old"
    with pytest.raises(FedcomeError, match="there is no run nobody"):
        ours.log_files("nobody", [str(source)])


def test_files_also_go_where_mlflow_alone_knows_the_way(
    ours: Client, theirs: Client, tmp_path: Path
) -> None:
    (tmp_path / "result.json").write_text("{}")
    experiment = theirs.create_experiment("by a path", str(tmp_path / "there"), {}).id
    run_id = ours.create_run(experiment, "one", {}).id
    ours.log_files(run_id, [str(tmp_path / "result.json")])
    assert ours.files(run_id) == {"result.json"}


def test_nothing_is_written_to_a_file_that_is_gone(tmp_path: Path) -> None:
    """The old one may still be open, and would take everything."""
    uri, file = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow.db"
    theirs, ours = Client(uri), client_of(uri)
    experiment = theirs.create_experiment(EXPERIMENT, tmp_path.as_uri(), {}).id
    kept = ours.create_run(experiment, "kept", {}).id
    copy = file.read_bytes()
    file.unlink()
    with pytest.raises(FileNotFoundError):
        ours.create_run(experiment, "lost", {})
    assert not file.exists()
    file.write_bytes(copy)
    assert ours.run(kept).is_there
    assert ours.run(ours.create_run(experiment, "another", {}).id).is_there
    ours.close()
