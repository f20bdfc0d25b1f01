"""What this process computes with, asked of the libraries themselves."""

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

from fedcome_ray.numerics import environment

Arithmetic = dict[str, str]
"""By name: the processor, the threads, and each library's version and instructions."""

# Of mkl_cbwr.h: the flag of strict mode, the rest of the mode, and the path that needs no flag.
_MKL_STRICT, _MKL_PATH, _MKL_COMPATIBLE = 0x10000, 0xFFFF, 3
_MKL_EVERYTHING, _MKL_UNKNOWN = -1, -2


def arithmetic(device: torch.device) -> Arithmetic:
    """What decides the last bits of a result computed by this process on this device."""
    versions = {name: version(name) for name in ("numba", "numpy", "osqp", "scipy", "torch")}
    return {
        "portable": str(environment.is_portable()).lower(),
        "cpu": cpu_name(),
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
        "mkl": mkl_words(),
        "onednn": onednn_words(),
        "aten": torch.backends.cpu.get_cpu_capability(),
        "numpy": numpy_words(),
        "numpy_blas": blas_words(),
        "numba": numba_words(),
        "libc": " ".join(platform.libc_ver()).strip() or platform.platform(terse=True),
        "python": platform.python_version(),
        **{f"{name}_version": found for name, found in versions.items()},
        **(gpu_words() if device.type == "cuda" else {}),
    }


def comparable(found: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What must be the same for equal bits: portable results do not depend on the processor."""
    is_portable = found.get("portable") == "true"
    return tuple(sorted(item for item in found.items() if not (is_portable and item[0] == "cpu")))


@cache
def cpu_name() -> str:
    """The processor's name, with family and model where the name alone says little."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return _brand() or platform.processor() or platform.machine()
    fields = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.*)$", text, re.M))
    if "model name" not in fields:  # as on ARM
        parts = dict(re.findall(r"^CPU (implementer|variant|part)\s*: (.*)$", text, re.M))
        return " ".join([platform.machine(), *(f"{k} {v}" for k, v in sorted(parts.items()))])
    numbers = (fields.get(name, "?") for name in ("cpu family", "model", "stepping"))
    return "{} (family {}, model {}, stepping {})".format(fields["model name"], *numbers)


def _brand() -> str:
    """The processor's name on macOS."""
    if sys.platform != "darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def gpu_words() -> Arithmetic:
    """The libraries of the GPU: of NVIDIA's, or of AMD's under the names of NVIDIA's; and which of
    several ways to compute the same was taken there.
    """
    return {
        "captured": str(environment.is_capturing()).lower(),
        "convolutions": environment.convolution_form(),
        "cuda_version": str(torch.version.hip or torch.version.cuda),
        "cudnn_version": str(torch.backends.cudnn.version()),
    }


def is_company_fixed() -> bool:
    """Whether the matrix products of PyTorch are told not to depend on company and alignment.

    True where there is no MKL, whose habit it is, and where it cannot be asked; a check of
    results says the rest.
    """
    mode = _mkl_mode()
    if mode is None or mode == _MKL_UNKNOWN:
        return True
    return bool(mode & _MKL_STRICT) or mode & _MKL_PATH == _MKL_COMPATIBLE


def not_portable() -> list[str]:
    """The libraries that were loaded before they were told to compute portably."""
    found = {
        "MKL": not mkl_words().endswith(("compatible", "none")),
        "ATen": torch.backends.cpu.get_cpu_capability() != "AVX2",
        "NumPy": "AVX512" in numpy_words() or "X86_V4" in numpy_words(),
        "OpenBLAS": "openblas" in blas_words() and "Haswell" not in blas_words(),
        "numba": numba_words() != "haswell",
    }
    return [library for library, is_late in found.items() if is_late]


def mkl_words() -> str:
    mode = _mkl_mode()
    if mode is None:
        return "none"
    if mode == _MKL_UNKNOWN:
        return "cannot be asked"
    found = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
    path = mode & _MKL_PATH
    words = {1: "by processor and company", 2: "by processor", _MKL_COMPATIBLE: "compatible"}
    strict = ", strict" if mode & _MKL_STRICT else ""
    return f"{found[1] if found else '?'}, {words.get(path, f'code path {path}')}{strict}"


def _mkl_mode() -> int | None:
    """MKL's mode of conditional numerical reproducibility, from the library that PyTorch loaded."""
    if not torch.backends.mkl.is_available():
        return None
    library = _torch_library()
    for name in ("mkl_serv_cbwr_get", "MKL_CBWR_Get"):  # linked into PyTorch, or beside it
        if hasattr(library, name):
            return int(getattr(library, name)(_MKL_EVERYTHING))
    return _MKL_UNKNOWN


def _torch_library() -> Any:
    folder = Path(torch.__file__).parent / "lib"
    found = [*folder.glob("libtorch_cpu.so"), *folder.glob("libtorch_cpu.dylib")]
    return ctypes.CDLL(str(found[0]) if found else None)


def onednn_words() -> str:
    """OneDNN does not tell what it uses, only what it may use at most."""
    if not torch.backends.mkldnn.is_available():
        return "none"
    found = re.search(r"MKL-DNN v(\S+)", torch.__config__.show())
    return f"{found[1] if found else '?'}, at most {os.environ.get('ONEDNN_MAX_CPU_ISA', 'ALL')}"


def numba_words() -> str:
    """The processor that numba compiles for; asked of it if it is loaded, which takes seconds."""
    config: Any = getattr(sys.modules.get("numba"), "config", None)
    name = os.environ.get("NUMBA_CPU_NAME") if config is None else config.CPU_NAME
    return str(name or "this processor's instructions")


def numpy_words() -> str:
    """The groups of instructions among which NumPy chooses."""
    config: Any = np.show_config(mode="dicts")
    return " ".join(config.get("SIMD Extensions", {}).get("found", [])) or "baseline"


def blas_words() -> str:
    """The matrix products of NumPy."""
    loaded = [info for info in threadpool_info() if info["user_api"] == "blas"]
    own = [info for info in loaded if "numpy" in Path(info["filepath"]).parts[-2]] or loaded
    words = {
        f"{info['internal_api']} {info['version']} {info.get('architecture', '')}".strip()
        for info in own
    }
    if words:
        return ", ".join(sorted(words))
    config: Any = np.show_config(mode="dicts")
    return str(config.get("Build Dependencies", {}).get("blas", {}).get("name", "unknown"))
