"""Checkpoints: nested states as named arrays in one file that is replaced atomically.

The file is in the safetensors format: reading one cannot execute code.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fedcome_ray.numerics.arrays import Arrays, aligned


def flatten(state: Any, name: str) -> Arrays:
    """The leaves of nested named tuples of tensors, arrays and numbers, by dotted name."""
    if isinstance(state, tuple):
        fields = state._asdict().items()  # type: ignore[attr-defined]
        return {k: v for field, leaf in fields for k, v in flatten(leaf, f"{name}.{field}").items()}
    leaf = state.detach().numpy() if isinstance(state, torch.Tensor) else np.asarray(state)
    return {name: np.ascontiguousarray(leaf).reshape(leaf.shape)}


def rebuild(template: Any, arrays: Arrays, name: str) -> Any:
    """The inverse of `flatten`; the template says the types, not the shapes."""
    if isinstance(template, tuple):
        fields = template._asdict().items()  # type: ignore[attr-defined]
        return type(template)(*(rebuild(leaf, arrays, f"{name}.{field}") for field, leaf in fields))
    array = arrays[name]
    if isinstance(template, torch.Tensor):
        return aligned(torch.from_numpy(array))
    return array if isinstance(template, np.ndarray) else type(template)(array.item())


def write(path: Path, arrays: Arrays, notes: Mapping[str, str]) -> None:
    """Replace the file as a whole: a crash leaves the old one or the new one."""
    replace(path, lambda temporary: save_file(arrays, temporary, metadata=dict(notes)))


def read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays of a checkpoint and what was noted beside them."""
    with safe_open(path, framework="numpy") as file:
        notes: dict[str, str] = file.metadata() or {}
    return load_file(path), notes


def read_number(path: Path, name: str) -> int:
    """One number of a checkpoint, without reading the rest."""
    with safe_open(path, framework="numpy") as file:
        return int(file.get_tensor(name))


def replace(path: Path, save: Callable[[Path], object]) -> None:
    """Let `save` write a temporary file beside `path`, then put it in its place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
