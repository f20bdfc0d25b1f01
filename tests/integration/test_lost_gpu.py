"""A GPU that fails for good: the process that had it is not used again, and its trial goes on.

A method pretends it: CUDA answers every call after such an error with the same error, until the
process ends. In a process of its own: this one may be connected to another cluster.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from fedcome_ray.trials.folder import LOG, TrialResult, read_result

pytestmark = pytest.mark.ray

PLUGIN = """
import gc
from functools import cache
from pathlib import Path
from typing import Literal

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Method

LOST = []  # of this process


@cache
def here():
    is_shard = any(type(one).__name__ == "ShardHost" for one in gc.get_objects())
    return "shard" if is_shard else "server"


class Fragile(Hyperparameters):
    name: Literal["fragile"] = "fragile"
    marker: str = "none"
    where: Literal["server", "shard"] = "server"


def build(hp):
    def correct(grad, params, received, client):
        is_rehearsal = grad.shape[-1] < 100
        if not is_rehearsal and here() == hp.where and not Path(hp.marker).exists():
            Path(hp.marker).touch()
            LOST.append(hp.marker)
        if LOST and not is_rehearsal:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return 0.5 * grad

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=correct,
        carry=parts.keep,
        aggregate=parts.average,
    )
"""
SCRIPT = """
import sys
from pathlib import Path
from fedcome_ray import tune
from fedcome_ray.console.output import Talk
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime.connection import connected

folder = Path(sys.argv[1])
common = [
    "--plugin", str(folder / "fragile.py"), "--set", "method.name=fragile", "--set", "rounds=3",
    "--axis", "seed=0,1", "--max-concurrent", "1",
]
two = ["--num-shards", "2"]
launches = {
    "sound": [],
    "joint": [],
    "server": two,
    "shard": [*two, "--set", "method.where=shard"],
}
(folder / "sound.marker").touch()
with connected(MachineOptions(), Talk().progress()):
    for name, more in launches.items():
        marker = folder / f"{name}.marker"
        words = ["--set", f"method.marker={marker}", "--output", str(folder / name), *more]
        if tune.main([*common, *words, "--cpus-per-shard", "0.4"]):
            sys.exit(f"{name} failed")
"""


def test_a_trial_goes_on_in_another_process_to_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(PLUGIN)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lost_by = {name: _folders(tmp_path / name) for name in ("joint", "server", "shard")}
    sound = _bits(_folders(tmp_path / "sound"))
    assert len(sound) == 2
    assert [_bits(folders) for folders in lost_by.values()] == [sound] * 3
    # A lost server is a new process for the trial, a lost shard only a new shard.
    logs = {name: [_is_lost_in(folder) for folder in folders] for name, folders in lost_by.items()}
    assert {name: sum(found) for name, found in logs.items()} == {
        "joint": 1,
        "server": 1,
        "shard": 0,
    }
    recoveries = {
        name: sum(result.recoveries for result in _results(folders))
        for name, folders in lost_by.items()
    }
    assert recoveries == {"joint": 0, "server": 0, "shard": 1}


def _folders(output: Path) -> list[Path]:
    return sorted((output / "trials").iterdir())


def _results(folders: list[Path]) -> list[TrialResult]:
    return [result for result in map(read_result, folders) if result is not None]


def _bits(folders: list[Path]) -> set[str]:
    return {result.params_sha256 for result in _results(folders)}


def _is_lost_in(folder: Path) -> bool:
    """Whether the trial's process failed by it; of a shard there is a line."""
    said = (folder / LOG).read_text() if (folder / LOG).exists() else ""
    return "CUDA error" in said and "Traceback" in said
