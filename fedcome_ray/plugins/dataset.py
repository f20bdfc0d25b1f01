"""A user's dataset: what it loads is checked before it is used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedcome_ray.datasets.population import Population, Split
from fedcome_ray.plugins.watch import Function, rehearsal, shown, watch


def watched(build: Function) -> Callable[[Any, Path | None], Population]:
    """The same `build`, which says where it fails or what is wrong with its population."""

    def build_watched(config: Any, data_dir: Path | None) -> Population:
        with rehearsal():
            population: Population = watch(build, _is_population)(config, data_dir)
        return population

    return build_watched


def _is_population(result: object, *_arguments: object) -> str | None:
    if not isinstance(result, Population):
        return f"returned {shown(result)}, expected a `Population`"
    if len(result.train.offsets) != len(result.test.offsets):
        return "returned another number of clients for training than for testing"
    if result.train.examples.x.shape[1:] != result.test.examples.x.shape[1:]:
        return "returned examples of another shape for training than for testing"
    sides = {"training": result.train, "test": result.test}
    complaints = (_complaint(split, result.num_classes) for split in sides.values())
    return next(
        (f"returned {side} examples {text}" for side, text in zip(sides, complaints, strict=True)
         if text),
        None,
    )  # fmt: skip


def _complaint(split: Split, num_classes: int) -> str | None:
    """What is wrong with one side of a population."""
    x, y, scale = split.examples
    if scale is not None:
        if x.dtype != np.uint8:
            return f"of {x.dtype} with a scale, which is for bytes (uint8)"
    elif x.dtype != np.float32 and x.dtype.kind != "i":
        return f"of {x.dtype}, expected float32, or integers such as the ids of tokens"
    if x.dtype == np.float32 and not np.isfinite(x).all():
        return "that are not finite"
    if y.dtype != np.int64 or y.shape != x.shape[:1]:
        return f"with labels {y.dtype} of {y.shape}, expected int64 of {x.shape[:1]}"
    if not (y.min() >= 0 and y.max() < num_classes):
        return f"with labels from {y.min()} to {y.max()}, expected 0 to {num_classes - 1}"
    if split.offsets[-1] != len(split.order) or not (split.order >= 0).all():
        return "whose order does not fit the clients' offsets"
    if (split.sizes < 1).any():
        return f"of which client {int(np.argmin(split.sizes))} has none"
    return None
