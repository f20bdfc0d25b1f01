"""MLflow's pages: whom they answer."""

import http.client
import socket
import time
from pathlib import Path

import pytest

from fedcome_ray.tracking.store import open_store
from tests.end_to_end.commands import start
from tests.unit.tracking.stores import TAGS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def status(port: int, method: str, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        body = '{"max_results": 1}' if method == "POST" else None
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_requests_from_pages_of_other_sites_are_refused(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path / 'mlflow.db'}", "small", tmp_path / "artifacts", TAGS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = start("fedcome_ray.ui", "--output", str(tmp_path), "--port", str(port))
    search = "/api/2.0/mlflow/experiments/search"
    try:
        wait_for(port)
        assert status(port, "POST", search) == 200
        assert status(port, "POST", search, Origin=f"http://127.0.0.1:{port}") == 200
        assert status(port, "POST", search, Host=f"localhost:{port}") == 200
        assert status(port, "POST", search, Host="evil.example") == 403
        assert status(port, "POST", search, Host="192.168.0.7:5000") == 403
        assert status(port, "POST", search, Origin="https://evil.example") == 403
        assert status(port, "GET", "/", Host="evil.example") == 403
    finally:
        page.terminate()
        page.communicate(timeout=60)


def wait_for(port: int) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            if status(port, "GET", "/health") == 200:
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError("MLflow did not start")
