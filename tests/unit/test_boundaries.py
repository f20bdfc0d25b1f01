"""Ray and MLflow live at the rim, and `--help` answers at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedcome_ray.__main__ import COMMANDS

INNER = (
    "fedcome_ray.methods",
    "fedcome_ray.clients.training",
    "fedcome_ray.clients.shard",
    "fedcome_ray.federation.server",
    "fedcome_ray.federation.round",
    "fedcome_ray.trials.run",
    "fedcome_ray.samplers",
    "fedcome_ray.consensus.agreement",
)


def imported_by(code: str) -> set[str]:
    """The packages that are loaded in a new process after this code."""
    report = "import atexit, sys; atexit.register(lambda: print('\\nloaded', *sys.modules))\n"
    answer = subprocess.run(
        [sys.executable, "-c", report + code], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.splitlines()[-1].split())


def test_the_learning_core_needs_neither_ray_nor_mlflow() -> None:
    loaded = imported_by(f"import {', '.join(INNER)}")
    assert set(INNER) <= loaded
    assert not {"ray", "mlflow"} & loaded


def test_every_inner_module_can_be_imported_first() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {INNER!r}:\n"
        "    for loaded in [m for m in sys.modules if m.startswith('fedcome_ray')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    assert "fedcome_ray.consensus.agreement" in imported_by(code)


@pytest.mark.parametrize("program", sorted(COMMANDS))
def test_help_does_not_wait_for_heavy_imports(program: str) -> None:
    loaded = imported_by(f"from fedcome_ray.{program} import main; main(['--help'])")
    assert f"fedcome_ray.{program}" in loaded
    assert not {"torch", "ray", "mlflow", "pandas"} & loaded


def test_ray_can_be_started_while_pytorch_is_imported() -> None:
    loaded = imported_by("from fedcome_ray.runtime.connection import begun")
    assert "ray" in loaded
    assert not {"torch", "numpy", "ray.tune"} & loaded


def test_a_trial_in_one_process_is_prepared_without_ray_and_mlflow() -> None:
    loaded = imported_by("import fedcome_ray.launch.single")
    assert not {"ray", "mlflow", "pandas", "numba"} & loaded


def test_the_grids_are_listed_without_ray() -> None:
    loaded = imported_by("from fedcome_ray import tune; tune.main(['--list'])")
    assert not {"ray", "mlflow"} & loaded


@pytest.mark.ray
def test_a_launch_leaves_mlflow_to_its_own_process(tmp_path: Path) -> None:
    words = ["--axis", "seed=0", "--set", "rounds=1", "--quiet", "--output", str(tmp_path)]
    loaded = imported_by(f"from fedcome_ray import tune; tune.main({words})")
    assert "ray.tune" in loaded
    assert (tmp_path / "mlflow.db").exists()
    assert "mlflow" not in loaded
