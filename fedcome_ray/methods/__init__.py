"""The methods, by name.

A method is a module with one class of hyper-parameters, whose `name` has a default, and a function
`build`. Ours are listed here; a user's come from `--plugin FILE` or from an installed package's
entry point in the group `fedcome_ray.methods`, which names such a module.
"""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray import registry
from fedcome_ray.errors import UserError
from fedcome_ray.hyperparameters import Hyperparameters, name_of
from fedcome_ray.methods import (
    fedadam,
    fedavg,
    fedcome,
    feddc,
    feddyn,
    fedfv,
    fedmgda_plus,
    fednova,
    fedprox,
    fedyogi,
    plugins,
    qffl,
    scaffold,
)
from fedcome_ray.methods.method import AnyMethod


class Entry(NamedTuple):
    """A method as the registry knows it."""

    config: type[Hyperparameters]
    build: Callable[[Any], AnyMethod]
    digest: str | None = None  # of a plugin's code, which its author will change


REGISTRY: dict[str, Entry] = {
    "fedavg": Entry(fedavg.FedAvg, fedavg.build),
    "fedprox": Entry(fedprox.FedProx, fedprox.build),
    "scaffold": Entry(scaffold.Scaffold, scaffold.build),
    "feddyn": Entry(feddyn.FedDyn, feddyn.build),
    "fedfv": Entry(fedfv.FedFV, fedfv.build),
    "feddc": Entry(feddc.FedDC, feddc.build),
    "fedcome": Entry(fedcome.FedCOME, fedcome.build),
    "fednova": Entry(fednova.FedNova, fednova.build),
    "fedadam": Entry(fedadam.FedAdam, fedadam.build),
    "fedyogi": Entry(fedyogi.FedYogi, fedyogi.build),
    "qffl": Entry(qffl.QFFL, qffl.build),
    "fedmgda_plus": Entry(fedmgda_plus.FedMGDAPlus, fedmgda_plus.build),
}

PAPER = ("fedavg", "fedprox", "scaffold", "feddyn", "fedfv", "feddc", "fedcome")
"""The rows of the paper's tables, in their order."""


def build(config: Hyperparameters) -> AnyMethod:
    """The method that a configuration describes."""
    return REGISTRY[name_of(config)].build(config)


def digest_of(config: Hyperparameters) -> str | None:
    """Of the code of a method that comes from a plugin."""
    return REGISTRY[name_of(config)].digest


def load_plugins(files: Iterable[str]) -> None:
    """Make the methods of users' files, and of installed packages, known by name."""
    for origin, module in plugins.modules(files):
        configs = {item for item in vars(module).values() if _is_config(item, module)}
        if len(configs) != 1:
            raise UserError(
                f"{origin}: must define one subclass of `Hyperparameters` whose field `name` has "
                f"a default, found {len(configs)}"
            )
        if not callable(getattr(module, "build", None)):
            raise UserError(f"{origin}: must define `build`, a function that returns a `Method`")
        config = configs.pop()
        name = config.model_fields["name"].default
        if name in REGISTRY and REGISTRY[name].config is not config:
            raise UserError(f"{origin}: takes the name `{name}`, which another method has")
        REGISTRY[name] = Entry(config, module.build, plugins.digest(module))


def _is_config(item: object, module: ModuleType) -> bool:
    """Whether this is a method's hyper-parameters, defined there and not only imported."""
    if not (isinstance(item, type) and issubclass(item, Hyperparameters)):
        return False
    name = item.model_fields.get("name")
    return item.__module__ == module.__name__ and name is not None and isinstance(name.default, str)


MethodConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(lambda value: registry.parse("method", REGISTRY, value)),
]
