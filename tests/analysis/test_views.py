import base64
import json
import socket
import zlib
from pathlib import Path

import pytest

from fedcome_ray import ui
from fedcome_ray.tracking import views


def decoded(key: str) -> dict[str, object]:
    envelope = json.loads(views.saved_view_tags()[f"mlflow.sharedViewState.{key}"])
    prefix, _, packed = envelope["state"].partition(";")
    assert prefix == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_the_views_are_what_the_page_reads() -> None:
    table, curves = decoded(views.TABLE), decoded(views.CURVES)
    assert table["orderByKey"] == "metrics.`accuracy/test`"
    assert "params.`method.name`" in table["selectedColumns"]
    assert {chart["metricKey"] for chart in curves["compareRunCharts"]} == set(views.CHARTS)


def test_the_same_view_is_the_same_tag() -> None:
    assert views.saved_view_tags() == views.saved_view_tags()


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
