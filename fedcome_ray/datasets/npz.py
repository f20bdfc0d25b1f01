"""A user's own federated dataset: one `.npz` file with six arrays.

`x_train`, `y_train`, `client_train` and the same for `test`: examples of any shape, their labels
from 0, and the numbers of the clients that own them, from 0 without gaps. Bytes are pixels and
scaled to [0, 1]; other numbers are taken as they are.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedcome_ray.datasets import npz_files
from fedcome_ray.datasets.checks import check_clients, check_lengths, check_numbers
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.population import (
    Description,
    Examples,
    Population,
    Split,
    split_by_client,
)
from fedcome_ray.errors import DataError

NUMBERS = ("y_train", "client_train", "y_test", "client_test")
ARRAYS = ("x_train", "x_test", *NUMBERS)


class Npz(DatasetSettings):
    """A user's own federated dataset: a NumPy file of examples, labels and client numbers."""

    dataset: Annotated[str, Field(pattern="^npz:.+")]
    """`npz:` and the path of the file."""
    sha256: str | None = None
    """Of the file, filled in when the settings are read: other contents are another trial."""

    @model_validator(mode="before")
    @classmethod
    def _identify(cls, settings: Any) -> Any:
        path = _path_in(str(settings.get("dataset")))
        if settings.get("sha256") is None and path.is_file():
            state = path.stat()
            return {**settings, "sha256": _digest(path, state.st_mtime_ns, state.st_size)}
        return settings

    @property
    def path(self) -> Path:
        return _path_in(self.dataset)


def _path_in(name: str) -> Path:
    return Path(name.removeprefix("npz:")).expanduser()


@cache
def _digest(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(config: Npz, _data_dir: Path | None) -> Population:
    arrays = npz_files.read(config.path, ARRAYS)
    num_classes, num_clients = _checked_counts(config.path, arrays)
    _check_sides_fit(config.path, arrays["x_train"], arrays["x_test"])
    train, test = (_split(config.path, arrays, side, num_clients) for side in ("train", "test"))
    return Population(train, test, num_classes)


def describe(config: Npz) -> Description:
    """From labels, clients and the header of the examples."""
    path = config.path
    numbers = npz_files.read(path, NUMBERS)
    num_classes, num_clients = _checked_counts(path, numbers)
    totals = len(numbers["y_train"]), len(numbers["y_test"])
    shape = npz_files.shape(path, "x_train")[1:]
    return Description(shape, num_classes, *totals, num_clients)


def check_available(config: Npz, _data_dir: Path | None) -> None:
    npz_files.check_has(config.path, ARRAYS)


def _checked_counts(path: Path, arrays: dict[str, AnyArray]) -> tuple[int, int]:
    """The numbers of classes and of clients, if both are numbered as they should be."""
    for side in ("train", "test"):
        columns = {name: arrays[name] for name in NUMBERS if name.endswith(side)}
        check_lengths(path, **columns)
    # There cannot be more classes, or more clients, than training examples.
    most = len(arrays["y_train"])
    num_classes = 1 + int(check_numbers(path, "y_train", arrays["y_train"], most).max())
    check_numbers(path, "y_test", arrays["y_test"], num_classes)
    clients = {
        name: check_numbers(path, name, arrays[name], most)
        for name in ("client_train", "client_test")
    }
    num_clients = 1 + max(int(numbers.max()) for numbers in clients.values())
    for name, numbers in clients.items():
        check_clients(path, name, numbers, num_clients)
    return num_classes, num_clients


def _check_sides_fit(path: Path, train: AnyArray, test: AnyArray) -> None:
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path}: training and test examples must have one shape, "
            f"got {train.shape[1:]} and {test.shape[1:]}"
        )
    if (train.dtype == np.uint8) != (test.dtype == np.uint8):
        raise DataError(
            f"{path}: only bytes are scaled to [0, 1], so both x_train and x_test must be bytes or "
            f"neither, got {train.dtype} and {test.dtype}"
        )


def _split(path: Path, arrays: dict[str, AnyArray], side: str, num_clients: int) -> Split:
    x, y, clients = (arrays[f"{key}_{side}"] for key in ("x", "y", "client"))
    check_lengths(path, **{f"x_{side}": x, f"y_{side}": y})
    examples = Examples(_features(path, f"x_{side}", x), y.astype(np.int64))
    return split_by_client(examples, clients.astype(np.int64), num_clients)


def _features(path: Path, name: str, x: AnyArray) -> NDArray[np.float32]:
    if x.ndim < 2 or not (np.issubdtype(x.dtype, np.number) and np.isrealobj(x)):
        raise DataError(
            f"{path}: {name} must be real numbers of shape [examples, ...], got "
            f"{x.dtype} of {x.shape}"
        )
    with np.errstate(over="ignore"):  # too large numbers become infinite, and an error below
        features = x.astype(np.float32)
    if x.dtype == np.uint8:
        features /= 255
    if not np.isfinite(features).all():
        row = np.argwhere(~np.isfinite(features))[0][0]
        raise DataError(f"{path}: {name} must be finite float32 numbers, example {row} is not")
    return features


DATASET = Dataset(
    config=Npz, build=load, describe=describe, check_available=check_available, is_own=True
)
