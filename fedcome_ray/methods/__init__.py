"""The methods, by name.

A method is a module with one class of hyper-parameters, whose `name` has a default, and a function
`build`. Ours are listed here; a user's come from `--plugin FILE` or from an installed package's
entry point in the group `fedcome_ray.methods`, which names such a module.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from fedcome_ray.errors import UserError, did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import fedavg, fedcome, feddc, feddyn, fedfv, fedprox, scaffold
from fedcome_ray.methods.method import AnyMethod


class Entry(NamedTuple):
    """A method as the registry knows it."""

    config: type[Hyperparameters]
    build: Callable[[Any], AnyMethod]


REGISTRY: dict[str, Entry] = {
    "fedavg": Entry(fedavg.FedAvg, fedavg.build),
    "fedprox": Entry(fedprox.FedProx, fedprox.build),
    "scaffold": Entry(scaffold.Scaffold, scaffold.build),
    "feddyn": Entry(feddyn.FedDyn, feddyn.build),
    "fedfv": Entry(fedfv.FedFV, fedfv.build),
    "feddc": Entry(feddc.FedDC, feddc.build),
    "fedcome": Entry(fedcome.FedCOME, fedcome.build),
}

PAPER = ("fedavg", "fedprox", "scaffold", "feddyn", "fedfv", "feddc", "fedcome")
"""The rows of the paper's tables, in their order."""


def build(config: Hyperparameters) -> AnyMethod:
    """The method that a configuration describes."""
    return REGISTRY[config.name].build(config)  # type: ignore[attr-defined]


def load_plugins(files: Iterable[str]) -> None:
    """Make the methods of users' files, and of installed packages, known by name."""
    for point in entry_points(group="fedcome_ray.methods"):
        _register(point.load(), f"entry point `{point.name}`")
    for file in files:
        _register(_import_file(Path(file)), f"plugin `{file}`")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"--plugin: there is no file `{path}`")
    # A name of its own, the same in every process, so that Ray can pass its states around.
    name = f"fedcome_ray_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--plugin: `{path}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _register(module: ModuleType, origin: str) -> None:
    configs = [
        item
        for item in vars(module).values()
        if isinstance(item, type)
        and issubclass(item, Hyperparameters)
        and item.__module__ == module.__name__
        and "name" in item.model_fields
    ]
    if len(configs) != 1 or not callable(getattr(module, "build", None)):
        raise UserError(
            f"{origin} must have one subclass of `Hyperparameters` with a field `name`, "
            f"and a function `build`; found {len(configs)} such classes"
        )
    name = configs[0].model_fields["name"].default
    known = REGISTRY.get(name)
    if known is not None and known.config.__module__ != module.__name__:
        raise UserError(f"{origin} takes the name `{name}`, which another method has")
    REGISTRY[name] = Entry(configs[0], module.build)


def _validate(value: object) -> Hyperparameters:
    if isinstance(value, Hyperparameters):
        return value
    if not isinstance(value, dict) or "name" not in value:
        raise PydanticCustomError("method", "a method is given as its `name` and its settings")
    entry = REGISTRY.get(value["name"])
    if entry is None:
        allowed = did_you_mean(str(value["name"]), REGISTRY)
        raise PydanticCustomError(
            "method",
            "unknown method `{name}`; {allowed}",
            {"name": value["name"], "allowed": allowed},
        )
    return entry.config.model_validate(value)


MethodConfig = Annotated[SerializeAsAny[Hyperparameters], PlainValidator(_validate)]
