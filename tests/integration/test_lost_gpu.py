"""A GPU that fails for good: the process that had it is not used again, and its trial goes on.

A method pretends it: CUDA answers every call after such an error with the same error, until the
process ends. In a process of its own: this one may be connected to another cluster.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from fedcome_ray.trials.folder import LOG, read_result

pytestmark = pytest.mark.ray

PLUGIN = """
from pathlib import Path
from typing import Literal

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Method

LOST = []  # of this process


class Fragile(Hyperparameters):
    name: Literal["fragile"] = "fragile"
    marker: str = "none"


def build(hp):
    def correct(grad, params, received, client):
        is_rehearsal = grad.shape[-1] < 100
        if not is_rehearsal and not Path(hp.marker).exists():
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
from fedcome_ray.runtime.connection import connected

folder = Path(sys.argv[1])
common = [
    "--plugin", str(folder / "fragile.py"), "--set", "method.name=fragile", "--set", "rounds=3",
    "--axis", "seed=0,1", "--max-concurrent", "1",
]
(folder / "sound.marker").touch()
with connected(None, Talk().progress()):
    for name, more in {"sound": [], "joint": [], "shards": ["--num-shards", "2"]}.items():
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
    sound, joint, shards = (
        sorted((tmp_path / name / "trials").iterdir()) for name in ("sound", "joint", "shards")
    )
    assert len(sound) == 2

    def bits(folders: list[Path]) -> set[str]:
        results = map(read_result, folders)
        return {result.params_sha256 for result in results if result is not None}

    assert bits(sound) == bits(joint) == bits(shards)
    assert len(bits(sound)) == 2
    logs = [folder / LOG for folder in joint]
    assert ["CUDA error" in log.read_text() for log in logs if log.exists()] == [True]
    recoveries = [result.recoveries for result in map(read_result, shards) if result is not None]
    assert sorted(recoveries) == [0, 1]
