"""MLflow's store as launches meet it: a server that goes away, and another launch beside."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.federation.round import Round
from fedcome_ray.launch import single
from fedcome_ray.run import main
from fedcome_ray.tracking import tracker
from fedcome_ray.tracking.store import open_store
from fedcome_ray.trials import run as trials
from tests.end_to_end.commands import start
from tests.leftovers import bits, rounds_in_mlflow
from tests.servers import MlflowServer
from tests.unit.tracking.stores import TAGS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDS = 80
SETTINGS = ["data.num_clients=10", "local.epochs=80", f"rounds={ROUNDS}"]  # long enough to disturb
MIRRORED = ("FINISHED", list(range(ROUNDS + 1)))


class Server(MlflowServer):
    """An MLflow server with an SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "mlflow.db"
        store = f"sqlite:///{self.database}"
        open_store(store, "other", folder, TAGS)  # quicker than by a server
        super().__init__(folder, store)

    def points(self) -> int:
        """The numbers that it has."""
        with closing(sqlite3.connect(self.database)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM metrics").fetchone()[0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    server.start()
    yield server
    server.kill()


def killed_when_under_way(
    server: Server, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None
) -> threading.Thread:
    """Kill the server as soon as it has more rounds than now, and before it has all."""
    before, is_killed, run_round = server.points(), threading.Event(), trials.run_round

    def wait_and_kill() -> None:
        while server.points() == before:
            time.sleep(0.05)
        server.kill()
        is_killed.set()
        then()

    def wait_and_run(federation: Any, *others: Any, **named: Any) -> Round:
        if federation.state.round_index == ROUNDS // 2:
            assert is_killed.wait(300)
        return run_round(federation, *others, **named)

    monkeypatch.setattr(trials, "run_round", wait_and_run)
    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    return thread


def test_a_server_may_go_away_and_come_back(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(single, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(tracker, "FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(tracker, "REST_SECONDS", 1.0)
    monkeypatch.setattr(tracker, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    command = [f"--set={setting}" for setting in SETTINGS]
    command += ["--output", str(tmp_path / "results"), "--tracking-uri", server.uri]

    killed_when_under_way(server, monkeypatch)
    assert main(command) == 3
    out, err = capsys.readouterr()
    assert f"({server.uri}); nothing is lost, the same command mirrors the results" in out
    assert "Traceback" not in out + err

    server.start()
    assert main(command) == 0
    assert rounds_in_mlflow(server.uri, "run") == [MIRRORED]

    monkeypatch.setattr(tracker, "PATIENCE_SECONDS", 120.0)
    journey = killed_when_under_way(server, monkeypatch, then=server.start)
    assert main([*command, "--set=seed=1"]) == 0
    journey.join()
    assert rounds_in_mlflow(server.uri, "run") == [MIRRORED, MIRRORED]


@pytest.mark.parametrize(
    ("command", "experiment", "num_trials"),
    [
        (["fedcome_ray.run"], "run", 1),
        pytest.param(["fedcome_ray.tune", "--axis=seed=0,1"], "sweep", 2, marks=pytest.mark.ray),
    ],
)
def test_two_launches_at_once_write_every_round_once(
    command: list[str], experiment: str, num_trials: int, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    settings = [f"--set={setting}" for setting in SETTINGS]
    outputs = [tmp_path / name for name in ("one", "other")]
    launches = [
        start(*command, *settings, "--tracking-uri", uri, "--output", str(output))
        for output in outputs
    ]
    for launch in launches:
        said, _ = launch.communicate(timeout=600)
        assert launch.returncode == 0, said
    assert bits(outputs[0]) == bits(outputs[1])
    assert rounds_in_mlflow(uri, experiment) == [MIRRORED] * num_trials
