"""Devices: the one place that knows on what, with how much memory and how precisely we compute."""

import ctypes
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from fedcome_ray.errors import UserError
from fedcome_ray.numerics import environment, libraries

RecordT = TypeVar("RecordT")
CPU = torch.device("cpu")

Precision = Literal["float32", "tf32", "bfloat16"]
"""Of matrix products: the last two are faster on GPUs that have them, and less exact."""

CONTEXT_BYTES = 500_000_000
"""Of a GPU's memory, what each process needs before it has a single tensor there."""
LOST = ("CUDA error", "CUDA driver error", "HIP error", "cuDNN error", "miopen")
Wish = Literal["auto", "cpu", "gpu"]
"""Of a user: `auto` takes a GPU where there is one that PyTorch can use."""


class Gpu(NamedTuple):
    """A GPU that PyTorch can use."""

    name: str
    memory: int  # bytes


def usable_gpus() -> list[Gpu]:
    """The GPUs that this process can compute on: those of CUDA and ROCm.

    Others may be there, and Ray counts them: an NVIDIA card beside a build of PyTorch for
    processors, Apple's, Intel's.
    """
    if not torch.cuda.is_available():
        return []
    found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [Gpu(one.name, one.total_memory) for one in found]


def no_gpu_because() -> str:
    """Why PyTorch has no GPU for us here, where it has none."""
    build = f"PyTorch {torch.__version__}"
    if torch.backends.mps.is_available():
        return f"{build} has Apple's GPU, but no double precision on it, which the consensus needs"
    if torch.version.cuda is None and torch.version.hip is None:
        return f"{build} is a build without CUDA and ROCm"
    return f"{build} finds no GPU, or no driver for it"


def wished(wish: Wish) -> torch.device:
    """The device of a process that has the machine for itself."""
    if wish == "cpu" or (wish == "auto" and not usable_gpus()):
        return CPU
    if not usable_gpus():
        raise UserError(f"--device: no GPU to compute on: {no_gpu_because()}")
    return pick(1.0)


def pick(gpu_fraction: float) -> torch.device:
    """The device for a process that was given this share of a GPU.

    The share decides, not what CUDA sees: Ray hides no GPU from a process that asked for none.
    """
    if gpu_fraction == 0:
        return CPU
    environment.convolution_form()  # refused here, not in the first local step
    if not usable_gpus():
        raise UserError(
            f"{platform.node()}: Ray gave this process {gpu_fraction:g} GPU, but "
            f"{no_gpu_because()}; give --device cpu"
        )
    device = torch.device("cuda", 0)  # Ray renumbers those that it shows
    limit = gpu_fraction - CONTEXT_BYTES / usable_gpus()[0].memory
    torch.cuda.set_per_process_memory_fraction(max(limit, gpu_fraction / 2), device)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # else it takes what happens to be fastest today
    return device


def memory_for(device: torch.device) -> int:
    """Bytes that this process may have on a GPU."""
    share = torch.cuda.get_per_process_memory_fraction(device)
    return int(share * torch.cuda.get_device_properties(device).total_memory)


def is_lost(error: BaseException) -> bool:
    """Whether a GPU's error ends all that this process can do there: after most of them CUDA
    answers every call with the same error until the process ends.

    Not so if memory ran out. Not all of these errors have a type of their own, but all begin alike.
    """
    return isinstance(error, RuntimeError) and str(error).startswith(LOST)


def prepare_process() -> None:
    """Make a process fit for training; every process that trains or aggregates does it first.

    One thread: the order of sums depends on the number of threads, and a result must not. Cores are
    used by processes, which is faster too. Activations of megabytes come and go in every local
    step. By default glibc returns them to the system each time, and taking the pages back costs a
    tenth of a convolutional model's time.
    """
    torch.set_num_threads(1)
    _limit_threads()
    _check_switches()
    if sys.platform == "linux":
        # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX of malloc.h
        trim_threshold, mmap_threshold, most_arenas = -1, -3, -8
        libc = ctypes.CDLL(None)
        libc.mallopt(most_arenas, 1)  # those of other threads give memory back all the same
        libc.mallopt(mmap_threshold, 32 * 2**20)  # the largest that glibc accepts
        libc.mallopt(trim_threshold, 256 * 2**20)


@cache  # to look for libraries takes milliseconds
def _limit_threads() -> None:
    threadpool_limits(1, user_api="blas")  # of NumPy
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of libraries that are loaded later


def _check_switches() -> None:
    """Ask the libraries whether they were told in time how to compute."""
    environment.check_portable()
    if not libraries.is_company_fixed():
        warnings.warn(
            "MKL computed before fedcome_ray was imported, or MKL_CBWR is set to something else: "
            "results may depend on the number of shards; import fedcome_ray first, unset MKL_CBWR",
            RuntimeWarning,
            stacklevel=4,
        )
    if environment.is_portable() and (late := libraries.not_portable()):
        raise UserError(
            f"--portable: {', '.join(late)} had chosen other instructions before; set "
            f"{environment.PORTABLE}=1 before Python starts, and import fedcome_ray before them"
        )


def wants_capture(device: torch.device) -> bool:
    """Whether local steps are to be CUDA graphs."""
    return device.type == "cuda" and environment.is_capturing()


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """A small array on the device, without waiting for the work that is under way there.

    Not for large ones: memory that the device can read by itself is never given back.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def move(record: RecordT, device: torch.device) -> RecordT:
    """A named tuple with its tensors on the device; those that are there already stay."""
    fields: Any = record
    return type(record)(*(item.to(device) if isinstance(item, Tensor) else item for item in fields))


@contextmanager
def precision(device: torch.device, name: Precision, *, can_autocast: bool) -> Iterator[None]:
    """Compute products in this precision; params stay float32.

    `bfloat16` needs autocast; without, it is `tf32`.
    """
    if device.type == "cpu":  # exact, and the reference for all others
        yield
        return
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, products.allow_tf32
    convolutions.allow_tf32 = products.allow_tf32 = name != "float32"
    try:
        is_lowered = name == "bfloat16" and can_autocast
        # No cache: a captured step would keep what is lowered in one round for all others.
        with torch.autocast(device.type, torch.bfloat16, is_lowered, cache_enabled=False):
            yield
    finally:
        convolutions.allow_tf32, products.allow_tf32 = before
