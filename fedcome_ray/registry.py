"""Things chosen by name: methods, models, samplers, datasets and partitions, ours and users'.

An entry is the class of a thing's settings, whose field `name` (of datasets, `dataset`) has the
name as its default, and the function that builds the thing from such settings.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic_core import PydanticCustomError

from fedcome_ray.errors import UserError, did_you_mean
from fedcome_ray.hyperparameters import Hyperparameters

ThingT = TypeVar("ThingT")


@dataclass(frozen=True)
class Code:
    """What a plugin is written in, which its author will change."""

    name: str
    """Of its file, without `.py`."""
    text: bytes
    """Of the file itself."""
    imported: Mapping[str, bytes] = field(hash=False)
    """The author's other files that it imports, by path from where they are imported."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file; where it imports others, of the digests of all."""
        own = hashlib.sha256(self.text).hexdigest()
        if not self.imported:
            return own
        others = [
            f"{path} {hashlib.sha256(text).hexdigest()}"
            for path, text in sorted(self.imported.items())
        ]
        return hashlib.sha256("\n".join([own, *others]).encode()).hexdigest()

    @property
    def files(self) -> dict[str, bytes]:
        """All of it by path, as it can be loaded again."""
        return {**self.imported, f"{self.name}.py": self.text}


@dataclass(frozen=True)
class Entry(Generic[ThingT]):
    """A thing as its registry knows it."""

    config: type[Hyperparameters]
    build: Callable[..., ThingT]
    """(settings, and what else things of its kind are built from) -> the thing"""
    label: str = ""
    """Its name in tables and figures."""
    code: Code | None = None
    """Of a plugin."""
    compiled: str | None = None
    """The module with the functions that Numba compiles for it."""


EntryT = TypeVar("EntryT", bound=Entry[Any])


class Registry(dict[str, EntryT]):
    """The things of one kind, by name."""

    def __init__(self, kind: str, entries: Iterable[EntryT], chosen_by: str = "name") -> None:
        super().__init__()
        self.kind, self.chosen_by = kind, chosen_by
        for entry in entries:
            self.add(entry)

    def add(self, entry: EntryT, origin: str = "") -> None:
        """Make a thing known; the same settings may come again, another thing's name may not."""
        name = str(entry.config.model_fields[self.chosen_by].default)
        if name in self and self[name].config is not entry.config:
            where = f"{origin}: " if origin else ""
            raise UserError(
                f"{where}the {self.kind} `{name}` exists already; give yours another name"
            )
        self[name] = entry

    def of(self, settings: Hyperparameters) -> EntryT:
        """The entry that these settings belong to."""
        return self[str(getattr(settings, self.chosen_by))]

    def digest_of(self, settings: Hyperparameters) -> str | None:
        """Of the code of what these settings belong to, where that is a plugin."""
        code = self.of(settings).code
        return None if code is None else code.digest

    def parse(self, value: object) -> Hyperparameters:
        """The settings of the thing that a mapping names."""
        if isinstance(value, Hyperparameters):
            return value
        if not isinstance(value, dict) or self.chosen_by not in value:
            raise PydanticCustomError(
                self.kind,
                f"a {self.kind} is given by its `{self.chosen_by}` and its settings; {{allowed}}",
                {"allowed": did_you_mean("", self)},
            )
        return self.entry_named(value[self.chosen_by]).config.model_validate(value)

    def entry_named(self, name: object) -> EntryT:
        if str(name) not in self:
            raise PydanticCustomError(
                self.kind,
                f"unknown {self.kind} `{{name}}`; {{allowed}}",
                {"name": name, "allowed": did_you_mean(str(name), self)},
            )
        return self[str(name)]
