import socket
from pathlib import Path

import pytest

from fedcome_ray import ui


def test_the_page_needs_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ui.main(["--output", str(tmp_path)]) == 2
    assert "there is no store" in capsys.readouterr().err


def test_a_port_in_use_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as other:
        other.bind((ui.HOST, 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert ui.main(["--output", str(tmp_path), "--port", port]) == 2
    assert "choose another" in capsys.readouterr().err
