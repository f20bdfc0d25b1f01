"""Federated-learning experiments on Ray.

from fedcome_ray import Trial, run
run(Trial(method={"name": "fedcome"}, rounds=20)).final
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedcome_ray.numerics import environment
from fedcome_ray.version import __version__

if TYPE_CHECKING:
    from fedcome_ray import consensus
    from fedcome_ray.api import Result, Results, results, run, run_grid
    from fedcome_ray.experiments.trial import Trial
    from fedcome_ray.methods.method import Method, Report
    from fedcome_ray.models.model import Model
    from fedcome_ray.samplers.sampler import Sampler

__all__ = [
    "Method",
    "Model",
    "Report",
    "Result",
    "Results",
    "Sampler",
    "Trial",
    "__version__",
    "consensus",
    "results",
    "run",
    "run_grid",
]

# Where each name is defined; looked up when it is asked for, so that `--help` answers at once.
_HOMES = {
    "Method": "methods.method",
    "Model": "models.model",
    "Report": "methods.method",
    "Result": "api",
    "Results": "api",
    "Sampler": "samplers.sampler",
    "Trial": "experiments.trial",
    "results": "api",
    "run": "api",
    "run_grid": "api",
}

environment.settle()  # before NumPy or PyTorch can compute: they read their switches once


def __getattr__(name: str) -> Any:
    if name == "consensus":
        return import_module("fedcome_ray.consensus")
    if name not in _HOMES:
        raise AttributeError(f"module `fedcome_ray` has no attribute `{name}`")
    return getattr(import_module(f"fedcome_ray.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
