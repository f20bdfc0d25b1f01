"""Addresses of stores: what cannot be used is refused at once, and passwords are not shown."""

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.tracking.address import check_uri


class _Guarded(BaseHTTPRequestHandler):
    """Lets only one user in, as MLflow with basic authentication does."""

    def do_GET(self) -> None:
        right = base64.b64encode(b"ann:s@/cret").decode()
        is_right = self.headers.get("Authorization") in {f"Basic {right}", "Bearer ticket"}
        self.send_response(200 if is_right else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on the screen."""


@pytest.fixture
def guarded() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Guarded) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No name or password but those of the test."""
    for name in ("USERNAME", "PASSWORD", "TOKEN"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_server_that_lets_us_in_is_taken(
    guarded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_uri(f"http://ann:s%40%2Fcret@{guarded}")
    (tmp_path / ".mlflow").mkdir()
    noted = "[mlflow]\nmlflow_tracking_username = ann\nmlflow_tracking_password = s@/cret\n"
    (tmp_path / ".mlflow" / "credentials").write_text(noted)
    check_uri(f"http://{guarded}")
    (tmp_path / ".mlflow" / "credentials").unlink()
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "ticket")
    check_uri(f"http://{guarded}/")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "s@/cret")
    check_uri(f"http://{guarded}")


def test_the_name_in_an_address_comes_first_as_for_mlflow(
    guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "other")
    check_uri(f"http://ann:s%40%2Fcret@{guarded}")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "ticket")
    with pytest.raises(UserError, match="lets nobody in"):
        check_uri(f"http://bob:other@{guarded}")


def test_one_that_does_not_is_refused_with_what_to_do(
    guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"):
        check_uri(f"http://{guarded}")
    with pytest.raises(UserError) as raised:
        check_uri(f"http://ann:wrong@{guarded}")
    assert f"`http://***@{guarded}` lets nobody in" in str(raised.value)
    assert "wrong" not in str(raised.value)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "ticket\n")
    with pytest.raises(UserError, match=r"^MLFLOW_TRACKING_TOKEN: has a line break"):
        check_uri(f"http://{guarded}")


def test_a_file_that_is_no_database_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    check_uri(uri)  # it need not be there
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    with pytest.raises(UserError, match=r"not a database; move that file away"):
        check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://127.0.0.1:1", "no MLflow server answers"),
        ("http://me:secret@127.0.0.1:1", "no MLflow server answers at `http://***@127.0.0.1:1`"),
        ("somewhere", "is not a URI"),
        ("", "`` is not a URI"),
        ("sqlite://", "allowed are http"),
        ("sqlite:///", "allowed are http"),
        ("foo://me:secret@bar", "`foo://***@bar` is not a URI"),
        ("file:///tmp/mlruns", "the databases postgresql, mysql, mssql"),
        ("postgresql://me:secret@127.0.0.1:1/x", "cannot use `postgresql://***@127.0.0.1:1/x`"),
        ("postgresql+nodriver://127.0.0.1:1/x", "cannot use `postgresql+nodriver:"),
        ("postgresql://h:port/x", "cannot use"),
    ],
)
def test_an_address_without_a_store_is_refused(uri: str, says: str) -> None:
    with pytest.raises(UserError) as raised:
        check_uri(uri)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)
