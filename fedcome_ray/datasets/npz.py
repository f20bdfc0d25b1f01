"""A user's own dataset: one `.npz` file.

`x_train`, `y_train` and the same for `test`: examples of any shape and their labels from 0. Bytes
are pixels and scaled to [0, 1]; other whole numbers are tokens and stay whole; all else is taken
as it is. `client_train` and `client_test` are the numbers of the clients that own the examples,
from 0 without gaps; in a file without them the examples are one pool, which a partition shares out.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import (
    Field,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedcome_ray.datasets import npz_files
from fedcome_ray.datasets.checks import check_clients, check_lengths, check_numbers, path_of
from fedcome_ray.datasets.dataset import Dataset, DatasetSettings
from fedcome_ray.datasets.npz_files import AnyArray, Header
from fedcome_ray.datasets.partitions import Dirichlet, PartitionConfig
from fedcome_ray.datasets.pooled import NUM_CLIENTS, Dealt, share_out
from fedcome_ray.datasets.population import (
    FLOAT32,
    Description,
    Examples,
    Features,
    Indices,
    Population,
    Scale,
    split_by_client,
)
from fedcome_ray.errors import DataError

SIDES = ("train", "test")
EXAMPLES = ("x_train", "y_train", "x_test", "y_test")
CLIENTS = ("client_train", "client_test")
NAMES = ("feature_names", "class_names", "client_names")
"""What features, classes and clients are called, for people; they may be there."""
PIXELS = Scale(np.array([1 / 255], np.float32), np.zeros(1, np.float32))


class Npz(DatasetSettings, Dealt):
    """A user's own dataset: a NumPy file of examples, labels and, if it has them, clients.

    How it is shared out can be said of a file without clients only.
    """

    dataset: Annotated[str, Field(pattern="^npz:.+")]
    """`npz:` and the path of the file."""
    num_clients: PositiveInt | None = None
    """How many clients share the examples of a file without clients; None: 100."""
    partition: PartitionConfig = Field(default_factory=Dirichlet)
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

    @model_serializer(mode="wrap")
    def _only_what_differs(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without defaults of how it is shared out: a file with clients has no use for them."""
        given = self.dealt_otherwise
        return {k: v for k, v in dump(self).items() if k not in Dealt.model_fields or k in given}

    @property
    def dealt_otherwise(self) -> list[str]:
        """The settings of how it is shared out that are not the default."""
        usual = {name: Npz.model_fields[name] for name in Dealt.model_fields}
        return [
            name
            for name, field in usual.items()
            if getattr(self, name) != field.get_default(call_default_factory=True)
        ]

    @property
    def path(self) -> Path:
        return _path_in(self.dataset)


def _path_in(name: str) -> Path:
    return path_of(name.removeprefix("npz:"))


@cache
def _digest(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Contents(NamedTuple):
    """What such a file says, checked."""

    train: Examples
    test: Examples
    num_classes: int
    clients: tuple[Indices, Indices] | None  # who owns the training and the test examples


def load(config: Npz, _data_dir: Path | None) -> Population:
    check_available(config, None)
    found = checked(config.path, npz_files.read(config.path, EXAMPLES, optional=CLIENTS))
    if found.clients is None:
        return share_out(config, found.train, found.test, found.num_classes)
    num_clients = _number(found.clients[0])
    train, test = (
        split_by_client(examples, clients, num_clients)
        for examples, clients in zip((found.train, found.test), found.clients, strict=True)
    )
    return Population(train, test, found.num_classes)


def checked(path: Path, arrays: dict[str, AnyArray]) -> Contents:
    """What the arrays of such a file say, if they are what they should be."""
    num_classes, clients = _checked_numbers(path, arrays)
    dtype = feature_dtype(arrays["x_train"].dtype, arrays["x_test"].dtype)
    train, test = (
        Examples(
            _features(path, f"x_{side}", arrays[f"x_{side}"], dtype),
            arrays[f"y_{side}"].astype(np.int64),
            PIXELS if _are_bytes(arrays[f"x_{side}"].dtype) else None,
        )
        for side in SIDES
    )
    return Contents(train, test, num_classes, clients)


def describe(config: Npz) -> Description:
    """From labels, clients and the headers of the examples."""
    check_available(config, None)
    path, found = config.path, checked_headers(config.path)
    numbers = npz_files.read(path, ("y_train", "y_test"), optional=CLIENTS)
    num_classes, clients = _checked_numbers(path, numbers)
    totals = len(numbers["y_train"]), len(numbers["y_test"])
    dealt = config.num_clients or NUM_CLIENTS
    num_clients = dealt if clients is None else _number(clients[0])
    shape, dtype = found["x_train"]
    features = feature_dtype(dtype, found["x_test"].dtype)
    return Description(
        shape[1:], num_classes, *totals, num_clients, features, are_bytes=_are_bytes(dtype)
    )


def check_available(config: Npz, _data_dir: Path | None) -> None:
    has_clients = CLIENTS[0] in checked_headers(config.path)
    for given in config.dealt_otherwise if has_clients else ():
        raise DataError(
            f"data.{given}: {config.path} says itself whose examples they are "
            f"({' and '.join(CLIENTS)}); leave data.{given} out, or those arrays"
        )


def checked_headers(path: Path) -> dict[str, Header]:
    """Those of all arrays, if the examples can be what they should be."""
    found = npz_files.headers(path, EXAMPLES, optional=CLIENTS)
    if len(found.keys() & set(CLIENTS)) == 1:
        npz_files.headers(path, CLIENTS)  # complains of the one that is missing
    for name in ("x_train", "x_test"):
        shape, dtype = found[name]
        if len(shape) < 2 or dtype.kind not in "iuf":
            raise DataError(
                f"{path}: {name} must be real numbers of shape [examples, ...], got "
                f"{dtype} of {shape}"
            )
    for side in SIDES:
        check_lengths(path, {name: one.shape for name, one in found.items() if name.endswith(side)})
    _check_sides_fit(path, found["x_train"], found["x_test"])
    return found


def _check_sides_fit(path: Path, train: Header, test: Header) -> None:
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{path}: training and test examples must have one shape, "
            f"got {train.shape[1:]} and {test.shape[1:]}"
        )
    if _are_bytes(train.dtype) != _are_bytes(test.dtype):
        raise DataError(
            f"{path}: only bytes are scaled to [0, 1], so both x_train and x_test must be bytes or "
            f"neither, got {train.dtype} and {test.dtype}"
        )


def _are_bytes(dtype: np.dtype[Any]) -> bool:
    return dtype == np.uint8


def feature_dtype(train: np.dtype[Any], test: np.dtype[Any]) -> np.dtype[Any]:
    """What features become: int64 if they are tokens, whole numbers other than bytes."""
    are_tokens = all(
        one.kind in "iu" and not _are_bytes(one) and np.can_cast(one, np.int64)
        for one in (train, test)
    )
    return np.dtype(np.int64) if are_tokens else FLOAT32


def _checked_numbers(
    path: Path, arrays: dict[str, AnyArray]
) -> tuple[int, tuple[Indices, Indices] | None]:
    """The number of classes and the clients, if both are numbered as they should be."""
    # There cannot be more classes, or more clients, than training examples.
    most = len(arrays["y_train"])
    num_classes = _number(check_numbers(path, "y_train", arrays["y_train"], most))
    check_numbers(path, "y_test", arrays["y_test"], num_classes)
    if CLIENTS[0] not in arrays:
        return num_classes, None
    train, test = (check_numbers(path, name, arrays[name], most) for name in CLIENTS)
    num_clients = max(_number(train), _number(test))
    for name, clients in zip(CLIENTS, (train, test), strict=True):
        check_clients(path, name, clients, num_clients)
    return num_classes, (train, test)


def _number(of: Indices) -> int:
    """How many classes or clients there are, counted from 0."""
    return 1 + int(of.max())


def _features(path: Path, name: str, x: AnyArray, dtype: np.dtype[Any]) -> Features:
    if _are_bytes(x.dtype):
        return x
    with np.errstate(over="ignore"):  # too large numbers become infinite, and an error below
        features = x.astype(dtype)
    if not np.isfinite(features).all():
        row = np.argwhere(~np.isfinite(features))[0][0]
        raise DataError(f"{path}: {name} must be finite float32 numbers, example {row} is not")
    return features


DATASET = Dataset(
    config=Npz, build=load, describe=describe, check_available=check_available, is_own=True
)
