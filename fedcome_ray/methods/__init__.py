"""The methods, by name: mathematics on params and updates, which knows no clients' data, no Ray.

A method is a module with one class of hyper-parameters, whose `name` has a default, and a function
`build`. Ours are listed here; a user's come from `--plugin FILE` or from an installed package's
entry point in the group `fedcome_ray.methods`, which names such a module.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from fedcome_ray.errors import UserError
from fedcome_ray.hyperparameters import Hyperparameters
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
from fedcome_ray.methods.watch import watched
from fedcome_ray.registry import Entry, Registry

MethodEntry = Entry[AnyMethod]

REGISTRY: Registry[MethodEntry] = Registry(
    "method",
    [
        MethodEntry(fedavg.FedAvg, fedavg.build, "FedAvg"),
        MethodEntry(fedprox.FedProx, fedprox.build, "FedProx"),
        MethodEntry(scaffold.Scaffold, scaffold.build, "SCAFFOLD"),
        MethodEntry(feddyn.FedDyn, feddyn.build, "FedDyn"),
        MethodEntry(fedfv.FedFV, fedfv.build, "FedFV"),
        MethodEntry(feddc.FedDC, feddc.build, "FedDC"),
        MethodEntry(
            fedcome.FedCOME,
            fedcome.build,
            "FedCOME",
            compiled="fedcome_ray.consensus.active_set",
        ),
        MethodEntry(fednova.FedNova, fednova.build, "FedNova"),
        MethodEntry(fedadam.FedAdam, fedadam.build, "FedAdam"),
        MethodEntry(fedyogi.FedYogi, fedyogi.build, "FedYogi"),
        MethodEntry(qffl.QFFL, qffl.build, "q-FFL"),
        MethodEntry(fedmgda_plus.FedMGDAPlus, fedmgda_plus.build, "FedMGDA+"),
    ],
)

PAPER = ("fedavg", "fedprox", "scaffold", "feddyn", "fedfv", "feddc", "fedcome")
"""The rows of the paper's tables, in their order."""


def build(config: Hyperparameters) -> AnyMethod:
    """The method that a configuration describes."""
    return REGISTRY.of(config).build(config)


def digest_of(config: Hyperparameters) -> str | None:
    """Of the code of a method that comes from a plugin."""
    return REGISTRY.of(config).digest


def source_of(config: Hyperparameters) -> bytes | None:
    """The code of a method that comes from a plugin."""
    return REGISTRY.of(config).source


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
        code = plugins.source(module)
        build, digest = watched(module.build), plugins.digest(code)
        entry = MethodEntry(config, build, config.__name__, digest, source=code)
        REGISTRY.add(entry, origin)


def _is_config(item: object, module: ModuleType) -> bool:
    """Whether this is a method's hyper-parameters, defined there and not only imported."""
    if not (isinstance(item, type) and issubclass(item, Hyperparameters)):
        return False
    name = item.model_fields.get("name")
    return item.__module__ == module.__name__ and name is not None and isinstance(name.default, str)


MethodConfig = Annotated[
    SerializeAsAny[Hyperparameters],
    PlainValidator(REGISTRY.parse),
]
