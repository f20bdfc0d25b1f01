"""The wheel: it has the grids and works far from the repository."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fedcome_ray.experiments import grid
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


def test_the_wheel_has_every_grid_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    grids = {Path(name).stem for name in names if name.startswith("fedcome_ray/tune_configs/")}
    assert grids == set(grid.grid_names())
    assert not [name for name in names if name.startswith("tests/")]


def test_the_wheel_works_outside_of_the_repository(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "elsewhere").mkdir()
    answer = subprocess.run(
        [sys.executable, "-m", "fedcome_ray.tune", "--list"],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(name in answer.stdout for name in grid.grid_names())
