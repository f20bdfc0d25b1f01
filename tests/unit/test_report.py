"""Where the analysis is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedcome_ray import report
from tests.end_to_end.commands import ROOT, environment


def test_a_strangers_analysis_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "analysis").mkdir()
    for name in ("__init__", "__main__"):
        (tmp_path / "analysis" / f"{name}.py").write_text("raise SystemExit('a stranger')")
    code = (
        "import sys\n"
        "from fedcome_ray import report\n"
        "try:\n"
        "    report.main(['--help'])\n"
        "finally:\n"
        "    print(sys.modules['fedcome_ray.analysis'].__file__, 'analysis' in sys.modules)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.startswith("usage: python -m fedcome_ray.report")
    assert answer.stdout.splitlines()[-1] == f"{ROOT / 'analysis' / '__init__.py'} False"


def test_an_installation_without_the_analysis_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "CHECKOUT", tmp_path)
    monkeypatch.delitem(sys.modules, report.ANALYSIS, raising=False)
    assert report.main(["--help"]) == 1
    assert "neither installed nor in" in capsys.readouterr().err
