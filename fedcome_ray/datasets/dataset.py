"""A dataset as the registry knows it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedcome_ray.datasets.population import Description, Population
from fedcome_ray.datasets.published import Published
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.registry import Entry, Registry


class DatasetSettings(Hyperparameters):
    """What can be said about the data of a trial; each dataset has its own fields."""

    dataset: str
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of every client's training examples that is held out and tested on instead of the test
    examples: to choose settings by. Unset, the test examples are used."""


class Varying(Hyperparameters):
    """Of a dataset whose name does not say what is in it: other contents are another trial."""

    sha256: str | None = None
    """Of the examples, filled in when the data folder is known, see `datasets.identified`."""


def _needs_no_files(_config: DatasetSettings, _data_dir: Path | None) -> None:
    """What comes with the installed packages is always there."""


@dataclass(frozen=True, kw_only=True)
class Dataset(Entry[Population]):
    """Its `build` takes the settings and the data folder, None for the usual one."""

    config: type[DatasetSettings]
    describe: Callable[[Any], Description] | None = None
    """(settings) -> sizes for estimates, without reading examples; unset, they are read"""
    check_available: Callable[[Any, Path | None], None] = _needs_no_files
    """(settings, data folder): raises the error of missing files"""
    published: Published | None = None
    """Where there are files to get."""
    is_own: bool = False
    """A user's own file, whose path is part of its name."""

    @property
    def has_files(self) -> bool:
        """Whether it is read, and neither generated nor a part of what is installed."""
        return self.published is not None or self.is_own


class DatasetRegistry(Registry[Dataset]):
    """The datasets by name; a user's own stand under `npz:PATH`, whatever their path."""

    def of(self, settings: Hyperparameters) -> Dataset:
        return self.entry_named(getattr(settings, self.chosen_by))

    def entry_named(self, name: object) -> Dataset:
        kind, colon, _ = str(name).partition(":")
        own = f"{kind}{colon}PATH"
        return self[own] if own in self else super().entry_named(name)
