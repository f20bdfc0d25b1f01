"""Whether code has to be compiled before trials can run, which takes a while, once a machine."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from fedcome_ray import methods, models, samplers
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.numerics.machine_code import Function


def is_due(trials: Iterable[Trial]) -> bool:
    """Whether these trials use functions whose compiled code is not on disk yet.

    Sums of updates, which all of them need, are compiled within a second: they do not count.
    """
    entries = {
        entry
        for trial in trials
        for entry in (
            methods.REGISTRY.of(trial.method),
            models.REGISTRY.of(trial.model),
            samplers.REGISTRY.of(trial.sampler),
        )
    }
    modules = {entry.compiled for entry in entries if entry.compiled is not None}
    return any(not _is_on_disk(module) for module in modules)


def _is_on_disk(module: str) -> bool:
    """Whether what Numba compiled of a module was kept; not all of it may have been needed."""
    named = vars(import_module(module)).values()
    if own := [function for function in named if isinstance(function, Function)]:
        return all(function.is_compiled() for function in own)
    functions: list[Any] = [function for function in named if hasattr(function, "stats")]
    stem = module.rpartition(".")[2]
    return any(
        file
        for function in functions
        for file in Path(function.stats.cache_path).glob(f"{stem}.{function.__name__}-*.nbi")
    )
