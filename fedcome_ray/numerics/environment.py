"""The switches of the numerical libraries, thrown before any of them computes.

Libraries choose their routines, and with them the order of sums, by the processor, and MKL also by
the number of matrices and by where they lie in memory. Two promises need two sets of switches:

- On one machine a result never depends on the company in which a client is trained. MKL's strict
  conditional numerical reproducibility gives that, at no measurable cost. It is always on.
- On different machines results are the same, if that is asked for (`--portable`, or the variable
  FEDCOME_PORTABLE for any process). Every library is held to instructions that all processors
  with AVX2 have; code of our own, see `fedcome_ray.numerics.machine_code`, has the same bits on
  all of them and is not.

Switches are environment variables, which child processes inherit; the libraries read them when
they are loaded or first called. So this module imports nothing but Python's own library, and the
package runs `settle` before anything else. Whether it came in time is not assumed here but asked
of the libraries: see `fedcome_ray.numerics.libraries`.
"""

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, get_args

from fedcome_ray.errors import UserError

PORTABLE = "FEDCOME_PORTABLE"
CAPTURE = "FEDCOME_CAPTURE"
CONVOLUTIONS = "FEDCOME_CONVOLUTIONS"
STRICT = {"MKL_CBWR": "AUTO,STRICT"}
GPU = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # else cuBLAS may sum in another order each time


ConvolutionForm = Literal["auto", "grouped", "products"]
"""How the convolutions of a block of clients are computed on a GPU: `auto` chooses by shape."""


def is_portable() -> bool:
    """Whether this process was asked to compute like every other machine."""
    return _is_on(PORTABLE)


def is_capturing() -> bool:
    """Whether the user asks for local steps as CUDA graphs, which nobody has measured yet."""
    return _is_on(CAPTURE)


def convolution_form() -> ConvolutionForm:
    """The user's choice, for a GPU on which another form is faster than the usual one."""
    found = os.environ.get(CONVOLUTIONS) or "auto"
    for form in get_args(ConvolutionForm):
        if found == form:
            return form  # type: ignore[no-any-return]
    allowed = ", ".join(get_args(ConvolutionForm))
    raise UserError(f"{CONVOLUTIONS}: expected one of {allowed}, got `{found}`")


def gpu_switches() -> dict[str, str]:
    """The user's choices for GPUs, as other processes need them."""
    return {name: os.environ[name] for name in (CAPTURE, CONVOLUTIONS) if name in os.environ}


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def settle() -> None:
    """Throw the switches of this process; what the user has set for MKL and cuBLAS stays."""
    os.environ.update({**GPU, **os.environ})
    if is_portable():
        if portable_obstacle() is None:  # else it is refused where something is computed
            os.environ.update(portable_switches())
    else:
        for name, value in STRICT.items():
            os.environ.setdefault(name, value)


def make_portable() -> None:
    """Compute from here on, and in child processes, like every other machine.

    Too late once NumPy is loaded: it has chosen its routines.
    """
    if not is_portable():
        if "numpy" in sys.modules:
            raise UserError(
                f"--portable: NumPy is loaded already and has chosen its instructions; "
                f"set {PORTABLE}=1 before Python starts, and import fedcome_ray before NumPy"
            )
        os.environ[PORTABLE] = "1"
    check_portable()
    settle()


def check_portable() -> None:
    """Refuse what this machine cannot keep."""
    if is_portable() and (obstacle := portable_obstacle()) is not None:
        raise UserError(f"--portable, {PORTABLE}: {obstacle}")


def portable_obstacle() -> str | None:
    """Why this machine cannot compute like the others, None if it can."""
    machine = platform.machine()
    if machine.lower() not in {"x86_64", "amd64"}:
        return f"needs a processor of the x86-64 kind with AVX2, this one is `{machine}`"
    flags = Path("/proc/cpuinfo")
    if flags.exists() and " avx2" not in flags.read_text():
        return "needs a processor with AVX2, which this one has not"
    return None


def portable_switches() -> dict[str, str]:
    """The variables that hold every library to AVX2, or less where AVX2 is not the same everywhere.

    MKL has one code path that all makers' processors share, COMPATIBLE; under its name for AVX2,
    processors of AMD and Intel run different routines.
    """
    return {
        PORTABLE: "1",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": _numpy_features_beyond_avx2(),
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",  # those of that processor, not those of this one
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }


def plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process that is not portable, whatever this process is."""
    if environment.get(PORTABLE, "") in ("", "0"):
        return dict(environment)
    return {k: v for k, v in environment.items() if k not in portable_switches()}


def _numpy_features_beyond_avx2() -> str:
    """NumPy warns of names that it does not know, and they changed with version 2.4."""
    try:
        major, minor = map(int, version("numpy").split(".")[:2])
    except PackageNotFoundError:
        return ""
    if (major, minor) >= (2, 4):
        return "X86_V4 AVX512_ICL AVX512_SPR"
    return "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
