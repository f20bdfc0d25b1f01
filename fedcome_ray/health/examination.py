"""What can be found out on one node, on a laptop and on each node of a cluster alike."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypedDict

from fedcome_ray.errors import FedcomeError
from fedcome_ray.numerics import environment, memory, processors

PROBE_SECONDS = 300


class Examination(TypedDict):
    """One node; None where something could not be had."""

    host: str
    cores: int
    memory_bytes: int
    plain: dict[str, Any]  # a Probe
    portable: dict[str, Any] | None
    portable_obstacle: str | None
    output_problem: str | None
    free_bytes: int | None  # where the output goes
    gpu: dict[str, Any] | None  # a health.gpu.Gpu
    gpu_problem: str | None  # why there is none, though PyTorch has a GPU


def examine(output: str) -> Examination:
    """Examine this node; both probes run at the same time."""
    obstacle = environment.portable_obstacle()
    probes = [_start(environment.plain_environment(os.environ), "--speed")]
    if obstacle is None:
        probes.append(_start({**os.environ, **environment.portable_switches()}))
    try:
        problem, free = _look_at(Path(output))
        plain, *portable = (_answer(probe) for probe in probes)
        gpu, gpu_problem = _examine_gpu() if plain["gpus"] else (None, None)
    finally:
        for probe in probes:
            probe.kill()
    return {
        "host": platform.node(),
        "cores": processors.usable_cpus(),
        "memory_bytes": memory.total_bytes(),
        "plain": plain,
        "portable": portable[0] if portable else None,
        "portable_obstacle": obstacle,
        "output_problem": problem,
        "free_bytes": free,
        "gpu": gpu,
        "gpu_problem": gpu_problem,
    }


def _examine_gpu() -> tuple[dict[str, Any] | None, str | None]:
    """What was found, or what went wrong: that the rest of the machine is fit is worth a word."""
    process = _start(environment.plain_environment(os.environ), "--json", module="gpu")
    try:
        return _answer(process), None
    except FedcomeError as error:
        return None, str(error)
    finally:
        process.kill()


def _start(variables: dict[str, str], *words: str, module: str = "probe") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"fedcome_ray.health.{module}", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, text=True)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        raise FedcomeError(
            f"a small trial took more than {PROBE_SECONDS} s on {platform.node()}"
        ) from None
    if process.returncode != 0:
        last = err.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise FedcomeError(f"a small trial failed on {platform.node()}: {last[0]}")
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def _look_at(folder: Path) -> tuple[str | None, int | None]:
    """What is wrong with the folder, or the nearest one above it that exists, and its free room."""
    there = next(some for some in (folder, *folder.parents) if some.exists())
    free = shutil.disk_usage(there).free
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return f"cannot write to {there}: {error.strerror}", free
    return None, free
