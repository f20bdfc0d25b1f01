"""The things that a user's module has to offer: methods, models, samplers and datasets.

A module with one thing is a class of settings and a function `build`, as ours are; what it is, is
told by the class and by what `build` takes and returns. A module with several says it of each by an
entry, as our registries do.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from fedcome_ray import datasets, methods, models, samplers
from fedcome_ray.datasets import Dataset, DatasetSettings
from fedcome_ray.errors import UserError
from fedcome_ray.hyperparameters import CHOOSING, Hyperparameters
from fedcome_ray.methods import MethodEntry
from fedcome_ray.models import ModelEntry
from fedcome_ray.plugins import dataset, method, model, sampler
from fedcome_ray.plugins.modules import Plugin
from fedcome_ray.plugins.watch import Function, place_of
from fedcome_ray.registry import Entry, Registry
from fedcome_ray.samplers import SamplerEntry
from fedcome_ray.samplers.sampler import Sampler

AnyEntry = Entry[Any]


@dataclass(frozen=True)
class Kind:
    """A kind of things, and how those of users are added to ours."""

    registry: Registry[Any]
    watched: Callable[[Function], Function]
    arguments: tuple[str, ...] = ("settings",)
    """What `build` takes."""
    is_built_at_once: bool = True
    """Whether it can be tried without data."""


KINDS: dict[type[AnyEntry], Kind] = {
    MethodEntry: Kind(methods.REGISTRY, method.watched),
    SamplerEntry: Kind(samplers.REGISTRY, sampler.watched),
    ModelEntry: Kind(
        models.REGISTRY,
        model.watched,
        ("settings", "feature_shape", "num_classes"),
        is_built_at_once=False,
    ),
    Dataset: Kind(
        datasets.REGISTRY, dataset.watched, ("settings", "data_dir"), is_built_at_once=False
    ),
}


def add(plugin: Plugin) -> None:
    """Make the things of a module known by their names, if they keep to their contracts."""
    try:
        for entry in list(_things(plugin.module)):
            _add(entry, plugin)
    except UserError as error:
        raise UserError(f"{plugin.origin}: {error}") from error


def _add(entry: AnyEntry, plugin: Plugin) -> None:
    kind, config = KINDS[type(entry)], entry.config
    default = config.model_fields.get(kind.registry.chosen_by)
    if default is None or not isinstance(default.default, str):
        raise UserError(f"`{config.__name__}.{kind.registry.chosen_by}` must have a default")
    if not _takes(entry.build, kind.arguments):
        raise UserError(
            f"{place_of(entry.build)}: must take {', '.join(kind.arguments)}, "
            f"to make the {kind.registry.kind} that `{config.__name__}` describes"
        )
    known = kind.registry.get(default.default)
    if known is not None and known.config is config and known.code == plugin.code:
        return  # another call of the same process needs it too
    build = kind.watched(entry.build)
    if kind.is_built_at_once:
        build(_defaults(config))
    label = entry.label or config.__name__
    kind.registry.add(replace(entry, build=build, label=label, code=plugin.code))


def _things(module: ModuleType) -> Iterator[AnyEntry]:
    items = list(vars(module).values())
    entries = [item for item in items if type(item) in KINDS and not _is_ours(item.config)]
    listed = {entry.config for entry in entries}
    configs = {item for item in items if _is_config(item, module)} - listed
    if not configs and not entries:
        raise UserError(
            "has nothing to offer: it must define a subclass of `Hyperparameters` whose field "
            "`name`, or of `DatasetSettings` whose field `dataset`, has a default, and `build`"
        )
    yield from entries
    if not configs:
        return
    build = getattr(module, "build", None)
    names = ", ".join(sorted(config.__name__ for config in configs))
    if len(configs) > 1:
        raise UserError(
            f"has several classes of settings ({names}): say of each what it is and what builds "
            f"it, as in `SMALL = ModelEntry(Small, build_small)`"
        )
    if not callable(build):
        raise UserError(f"must define `build`, a function that makes what `{names}` describes")
    yield _entry(configs.pop(), build)


def _entry(config: type[Hyperparameters], build: Function) -> AnyEntry:
    """A thing that is told by its settings and by what its `build` takes and returns."""
    if issubclass(config, DatasetSettings):
        return Dataset(config=config, build=build)
    if not _takes(build, ("settings",)) and _takes(build, KINDS[ModelEntry].arguments):
        return ModelEntry(config, build)
    with suppress(Exception):  # it will be called again, and then told what is wrong
        if isinstance(build(_defaults(config)), Sampler):
            return SamplerEntry(config, build)
    return MethodEntry(config, build)


def _takes(build: Function, arguments: tuple[str, ...]) -> bool:
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError:
        return False
    return True


def _defaults(config: type[Hyperparameters]) -> Hyperparameters:
    try:
        settings = config()
    except ValidationError as error:
        fields = [".".join(map(str, item["loc"])) for item in error.errors()]
        raise UserError(
            f"`{config.__name__}` must have valid defaults, with which it is tried; look at "
            f"{', '.join(fields)}"
        ) from None
    try:
        hash(settings)
    except TypeError:
        raise UserError(
            f"`{config.__name__}` has a setting that can be changed in place; declare lists as "
            f"`tuple[int, ...]`"
        ) from None
    return settings


def _is_config(item: object, module: ModuleType) -> bool:
    """Whether these are a thing's settings, defined there and not only imported."""
    if not (isinstance(item, type) and issubclass(item, Hyperparameters)):
        return False
    fields = (item.model_fields.get(name) for name in CHOOSING)
    has_name = any(field is not None and isinstance(field.default, str) for field in fields)
    return item.__module__ == module.__name__ and has_name


def _is_ours(config: type[Hyperparameters]) -> bool:
    return config.__module__.startswith("fedcome_ray.")
