"""A server for many: PostgreSQL, an artifact store, names and passwords."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fedcome_ray.run import main
from tests.benchmarks import tracking
from tests.servers import ADMIN, PASSWORD, MissingError

pytestmark = [
    pytest.mark.timeout(1800),  # servers start, which a busy machine takes its time for
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SETTINGS = ["data.num_clients=10", "model.hidden=[8]", "rounds=7"]


@pytest.fixture(scope="module")
def place() -> Iterator[tracking.Place]:
    try:
        with tracking.guarded_server() as place:
            yield place
    except MissingError as missing:
        pytest.skip(f"there is no {missing}")


def test_every_round_of_many_trials_is_there_once(place: tracking.Place) -> None:
    found = tracking.measure(place, num_trials=6, seconds=1.0, rounds=7, log_every=3)
    assert found.is_whole
    assert found.bytes_per_trial > 0
    assert found.artifact_bytes_per_trial > 0


def test_a_trial_is_tracked_and_its_password_is_nowhere(
    place: tracking.Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = place.uri.replace("://", f"://{ADMIN}:{PASSWORD}@")
    command = [*(f"--set={one}" for one in SETTINGS), "--output", str(tmp_path), "--json"]
    assert main([*command, "--tracking-uri", uri]) == 0
    out, err = capsys.readouterr()
    client = MlflowClient(place.uri)
    experiment = client.get_experiment_by_name("run")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert PASSWORD not in f"{out}{err}{run.to_dictionary()}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


def test_who_has_no_password_is_told_before_anything_starts(
    place: tracking.Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong-horse")
    assert main(["--output", str(tmp_path), "--tracking-uri", place.uri]) == 2
    said = capsys.readouterr().err
    assert f"error: --tracking-uri: the MLflow server at `{place.uri}` lets nobody in" in said
    assert "wrong-horse" not in said
    assert not (tmp_path / "trials").exists()
