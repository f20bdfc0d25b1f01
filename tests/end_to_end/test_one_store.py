"""MLflow's store as launches meet it: a server that goes away, and another launch beside."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.run import main
from fedcome_ray.tracking import tracker
from fedcome_ray.tracking.store import check_uri, open_store
from tests.end_to_end.commands import environment, start
from tests.leftovers import bits, rounds_in_mlflow
from tests.unit.tracking.stores import TAGS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDS = 80
SETTINGS = ["data.num_clients=10", "local.epochs=20", f"rounds={ROUNDS}"]  # long enough to disturb
MIRRORED = ("FINISHED", list(range(ROUNDS + 1)))


class Server:
    """An MLflow server of one's own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "mlflow.db"
        open_store(f"sqlite:///{self.database}", "other", folder, TAGS)  # quicker than by a server
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        store = ["--backend-store-uri", f"sqlite:///{self.database}"]
        artifacts = ["--artifacts-destination", str(self._folder / "artifacts")]
        where = ["--port", str(self.port), "--workers", "1"]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *store, *artifacts, *where],
                stdout=log,
                stderr=log,
                env=environment(),
                process_group=0,
            )
        end = time.monotonic() + 180
        while time.monotonic() < end:
            with suppress(UserError):
                check_uri(self.uri)
                return
            time.sleep(0.2)
        raise TimeoutError((self._folder / "server.log").read_text())

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

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


def when_under_way(server: Server, act: Callable[[], None]) -> threading.Thread:
    """Do something to the server as soon as it has more rounds than now."""
    before = server.points()

    def wait_and_act() -> None:
        while server.points() == before:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait_and_act, daemon=True)
    thread.start()
    return thread


def test_a_server_may_go_away_and_come_back(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tracker, "FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(tracker, "REST_SECONDS", 1.0)
    monkeypatch.setattr(tracker, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    command = [f"--set={setting}" for setting in SETTINGS]
    command += ["--output", str(tmp_path / "results"), "--tracking-uri", server.uri]

    when_under_way(server, server.kill)
    assert main(command) == 3
    out, err = capsys.readouterr()
    assert f"({server.uri}); nothing is lost, the same command mirrors the results" in out
    assert "Traceback" not in out + err

    server.start()
    assert main(command) == 0
    assert rounds_in_mlflow(server.uri, "run") == [MIRRORED]

    def leave_for_a_while() -> None:
        server.kill()
        server.start()

    monkeypatch.setattr(tracker, "PATIENCE_SECONDS", 120.0)
    journey = when_under_way(server, leave_for_a_while)
    assert main([*command, "--set=seed=1"]) == 0
    journey.join()
    assert rounds_in_mlflow(server.uri, "run") == [MIRRORED, MIRRORED]


def test_two_launches_at_once_write_every_round_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = [f"--set={setting}" for setting in SETTINGS]
    outputs = [tmp_path / name for name in ("one", "other")]
    launches = [
        start("fedcome_ray.run", *command, "--tracking-uri", uri, "--output", str(output))
        for output in outputs
    ]
    for launch in launches:
        said, _ = launch.communicate(timeout=300)
        assert launch.returncode == 0, said
    assert bits(outputs[0]) == bits(outputs[1])
    assert rounds_in_mlflow(uri, "run") == [MIRRORED]
