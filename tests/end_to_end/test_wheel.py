"""The wheel: it has the grids and the analysis, and works far from the repository."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from mlflow import MlflowClient

from fedcome_ray.experiments import grid
from tests.analysis.conftest import log_trial, trial
from tests.end_to_end.commands import ROOT

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("hatchling") and importlib.util.find_spec("pip")),
    reason="building a wheel needs hatchling and pip",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("fedcome_ray-*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip installs it, with its commands, beside the libraries that are there."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(folder), str(wheel)], check=True
    )
    return folder


def run_installed(site: Path, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_has_the_grids_and_the_analysis_and_claims_one_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    grids = {Path(name).stem for name in names if name.startswith("fedcome_ray/tune_configs/")}
    assert grids == set(grid.grid_names())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fedcome_ray"}
    files = {
        f"fedcome_ray/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "analysis").rglob("*.*")
        if "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("fedcome_ray/analysis/")} == files


def test_the_wheel_works_outside_of_the_repository(site: Path, tmp_path: Path) -> None:
    answer = run_installed(site, tmp_path, sys.executable, "-m", "fedcome_ray.tune", "--list")
    assert answer.returncode == 0, answer.stderr
    assert all(name in answer.stdout for name in grid.grid_names())


@pytest.mark.parametrize(
    "command", ["tune", "run", "data", "ui", "reproduce", "analysis", "doctor"]
)
def test_every_command_is_installed_and_explains_itself(
    command: str, site: Path, tmp_path: Path
) -> None:
    answer = run_installed(site, tmp_path, str(site / "bin" / f"fedcome-{command}"), "--help")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("usage: ")


# MLflow's own use of SQLAlchemy.
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_the_installed_analysis_draws_a_report(site: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(store)
    experiment = client.create_experiment("sensitivity", (tmp_path / "artifacts").as_uri())
    rows = trial("fedcome", 0, 30.0, 70.0, grid="sensitivity")
    settings = {"sampler.ema": 0.5, "sampler.greedy_fraction": 0.5}
    log_trial(client, experiment, rows.assign(**settings), tmp_path)
    words = ["--grid", "all", "--tracking-uri", store, "--output", str(tmp_path)]
    answer = run_installed(site, tmp_path, str(site / "bin" / "fedcome-analysis"), *words)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "analysis" / "report.html").exists()
    table = (tmp_path / "analysis" / "tables" / "sensitivity.md").read_text(encoding="utf-8")
    assert "| paper |" in table
