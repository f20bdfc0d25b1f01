"""The notebook of the first day runs from top to bottom, and is kept without what it shows."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")


@pytest.fixture
def notebook() -> Any:
    found = nbformat.read(DOCS / "first_day.ipynb", as_version=4)
    nbformat.validate(found)
    return found


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_is_kept_without_outputs(notebook: Any) -> None:
    assert [cell for cell in code(notebook) if cell.outputs or cell.execution_count] == []


def test_it_uses_the_public_face_alone(notebook: Any) -> None:
    cells = [cell.source for cell in code(notebook) if not cell.source.startswith("%%writefile")]
    imported = re.findall(r"^(?:from|import) (.+)$", "\n".join(cells), re.MULTILINE)
    assert imported == ["fedcome_ray import Trial, results, run, run_grid"]


@pytest.mark.ray
def test_it_runs(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    client = nbclient.NotebookClient(
        notebook,
        timeout=500,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    assert len(list((tmp_path / "first_day" / "trials").iterdir())) == 6
    shown = [out["data"] for cell in code(notebook) for out in cell.outputs if "data" in out]
    assert sum("image/png" in data for data in shown) == 3
    tables = [data["text/html"] for data in shown if "<table" in data.get("text/html", "")]
    assert any("momentum" in table and "fedavg" in table for table in tables)
