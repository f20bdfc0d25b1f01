"""From a store that the platform has filled to one frame."""

from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from analysis import results
from fedcome_ray.errors import UserError
from fedcome_ray.tracking.store import Store, open_store
from fedcome_ray.trials.folder import write_rounds
from tests.unit.tracking.stores import TAGS, TRIAL, client_of, some_rounds, uri_of, write_folder

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "mlflow.db"


@pytest.fixture
def store(database: Path, tmp_path: Path) -> Store:
    return open_store(uri_of(database), "small", tmp_path / "artifacts", TAGS)


def refuse(*_: object) -> None:
    raise AssertionError("not needed")


def test_a_file_tells_the_same_as_the_metrics(
    store: Store, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "trial")
    store.mirror(TRIAL, tmp_path / "trial")
    client = client_of(database)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_metric_history", refuse)
        quick = results.load(client, store.experiment_id)
    for file in (tmp_path / "artifacts").rglob("rounds.jsonl"):
        file.unlink()
    slow = results.load(client, store.experiment_id)
    assert list(quick["round"]) == [0, 1, 2, 3]
    pd.testing.assert_frame_equal(quick[sorted(quick)], slow[sorted(slow)])


def test_the_file_of_a_launch_before_is_not_read_of_a_trial_under_way(
    store: Store, database: Path, tmp_path: Path
) -> None:
    write_folder(tmp_path / "trial")
    write_rounds(tmp_path / "trial", some_rounds(0, 1))
    store.log_rounds(TRIAL, some_rounds(0, 1))
    store.end(TRIAL, "KILLED", tmp_path / "trial")
    store.log_rounds(TRIAL, some_rounds(0, 1, 2, 3))
    frame = results.load(client_of(database), store.experiment_id)
    assert list(frame["round"]) == [0, 1, 2, 3]


def test_a_trial_without_a_round_is_there_to_be_counted(store: Store, database: Path) -> None:
    store.begin(TRIAL)
    frame = results.load(client_of(database), store.experiment_id)
    assert len(frame) == 1
    assert pd.isna(frame["round"].iloc[0])
    assert frame["method.mu"].iloc[0] == 0.5
    assert set(results.NEEDED_METRICS) <= set(frame)


def test_of_thinned_metrics_the_file_tells_every_round_or_nothing_does(
    database: Path, tmp_path: Path
) -> None:
    artifacts = tmp_path / "artifacts"
    store = open_store(uri_of(database), "small", artifacts, TAGS, log_every=3)
    write_folder(tmp_path / "trial")
    store.mirror(TRIAL, tmp_path / "trial")
    client = client_of(database)
    assert list(results.load(client, store.experiment_id)["round"]) == [0, 1, 2, 3]
    for file in artifacts.rglob("rounds.jsonl"):
        file.unlink()
    with pytest.raises(UserError, match=r"has no file rounds.jsonl, .*: --log-every 3"):
        results.load(client, store.experiment_id)
