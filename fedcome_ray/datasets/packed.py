"""Packed datasets: decoded once, checked once, kept as one file of plain arrays.

Pixels stay bytes and are mapped into memory: the file is as small as the decoded data can be, and
a trial starts without unpacking anything. It is read through once before, for its checksums.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets import npz_files
from fedcome_ray.datasets.checks import check_clients, check_lengths, check_numbers
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.population import Description
from fedcome_ray.datasets.published import Published
from fedcome_ray.errors import DataError

VERSION = 1  # part of the file's name, so that a file of another version counts as missing
SIDES = ("train", "test")
NOBODY = np.empty(0, dtype=np.int64)


class PackedSide(NamedTuple):
    """The training or the test side of a published dataset, decoded."""

    x: NDArray[np.uint8]  # [examples, channels, height, width]; of texts, tokens [examples, length]
    y: NDArray[np.int64]
    clients: NDArray[np.int64]  # increasing; empty where a partition decides


class PackedArrays(NamedTuple):
    """A published dataset, decoded."""

    train: PackedSide
    test: PackedSide

    @property
    def num_clients(self) -> int:
        """The writers, where each is a client."""
        return 1 + int(self.train.clients.max())


def array_names(published: Published) -> list[str]:
    """The arrays in a dataset's file, packed or to be imported."""
    kinds = ("x", "y", "client") if published.clients else ("x", "y")
    return [f"{kind}_{side}" for side in SIDES for kind in kinds]


def pack_path(published: Published, folder: Path) -> Path:
    return folder / "packed" / f"{published.name}-v{VERSION}.npz"


def load(published: Published, folder: Path) -> PackedArrays:
    """A dataset that was packed; its pixels are mapped."""
    path = pack_path(published, folder)
    with _remedy(path):
        npz_files.check_sums(path)
        names = [key for key in array_names(published) if not key.startswith("x")]
        numbers = npz_files.read(path, names)
        train, test = (
            PackedSide(
                npz_files.memory_map(path, f"x_{side}"),
                numbers[f"y_{side}"].astype(np.int64),
                numbers.get(f"client_{side}", NOBODY).astype(np.int64),
            )
            for side in SIDES
        )
        return PackedArrays(train, test)


def save(published: Published, arrays: PackedArrays, folder: Path) -> Path:
    """Pack a dataset."""
    path = pack_path(published, folder)
    columns: dict[str, AnyArray] = {}
    for side, part in zip(SIDES, arrays, strict=True):
        columns[f"x_{side}"] = part.x
        columns[f"y_{side}"] = part.y.astype(np.uint8)  # there are at most 100 classes
        if len(part.clients):
            columns[f"client_{side}"] = part.clients.astype(np.int32)
    npz_files.write(path, columns)
    return path


def verify(published: Published, folder: Path) -> PackedArrays:
    """Read the packed file completely and compare it with what is known about the dataset."""
    path = pack_path(published, folder)
    with _remedy(path):
        npz_files.check_sums(path)
        return checked(published, npz_files.read(path, array_names(published)), path)


@contextmanager
def _remedy(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(
            f"{error}\n  delete {path}: it is packed again if the original files are there, "
            f"else get them with `python -m fedcome_ray.data download` or `import`"
        ) from None


def checked(published: Published, columns: Mapping[str, AnyArray], path: Path) -> PackedArrays:
    """The arrays of a published dataset, if that is what they are; `path` is for complaints."""
    writers = columns.get("writers", NOBODY)
    if writers.ndim != 1 or len(np.unique(writers)) != len(writers):
        raise DataError(f"{path}: writers must be a list of different ids")
    arrays = PackedArrays(*(_checked_side(published, columns, side, path) for side in SIDES))
    if published.clients:
        _check_writers(arrays, path)
    else:
        _check_is_published(published, arrays, path)
    return arrays


def _checked_side(
    published: Published, columns: Mapping[str, AnyArray], side: str, path: Path
) -> PackedSide:
    own = {name: array for name, array in columns.items() if name.endswith(f"_{side}")}
    check_lengths(path, {name: array.shape for name, array in own.items()})
    decoded = _tokens if published.is_text else _pixels
    x = decoded(path, f"x_{side}", own[f"x_{side}"], published)
    y = check_numbers(path, f"y_{side}", own[f"y_{side}"], published.num_classes)
    if not published.clients:
        return PackedSide(x, y, NOBODY)
    clients = check_numbers(path, f"client_{side}", own[f"client_{side}"], len(y))
    writers = columns.get("writers")
    if writers is not None:  # the ids of the clients: their order decides, not that of the file
        check_numbers(path, f"client_{side}", clients, len(writers))
        clients = np.argsort(np.argsort(writers, kind="stable"))[clients]
    order = np.argsort(clients, kind="stable")
    return PackedSide(x[order], y[order], clients[order])


def _pixels(path: Path, name: str, x: AnyArray, published: Published) -> NDArray[np.uint8]:
    """Bytes, channels first, from any usual layout."""
    channels, height, width = published.feature_shape
    if x.dtype != np.uint8:
        raise DataError(f"{path}: {name} must be bytes (uint8, 0 to 255), got {x.dtype}")
    if x.shape[1:] == (height, width, channels):
        return np.ascontiguousarray(np.moveaxis(x, -1, 1))
    flat = (channels * height * width,)
    if x.shape[1:] in {published.feature_shape, flat} or (channels, *x.shape[1:]) == (
        1,
        height,
        width,
    ):
        return np.ascontiguousarray(x).reshape(-1, *published.feature_shape)
    raise DataError(
        f"{path}: the images of {name} must be {height}x{width} with {channels} channel(s), "
        f"got shape {x.shape}"
    )


def _tokens(path: Path, name: str, x: AnyArray, published: Published) -> NDArray[np.uint8]:
    """Bytes, each the place of a character in the vocabulary, whose characters are the classes."""
    if x.dtype != np.uint8 or x.shape[1:] != published.feature_shape:
        raise DataError(
            f"{path}: {name} must be texts of {published.feature_shape[0]} tokens, as bytes "
            f"(uint8), got {x.dtype} of {x.shape}"
        )
    if x.max() >= published.num_classes:
        raise DataError(
            f"{path}: the tokens of {name} must be from 0 to {published.num_classes - 1}, "
            f"got {x.max()}"
        )
    return x


def _check_writers(arrays: PackedArrays, path: Path) -> None:
    num_clients = 1 + max(int(side.clients.max()) for side in arrays)
    for name, side in zip(SIDES, arrays, strict=True):
        check_clients(path, f"client_{name}", side.clients, num_clients)


def _check_is_published(published: Published, arrays: PackedArrays, path: Path) -> None:
    sizes = (len(arrays.train.y), len(arrays.test.y))
    if sizes != (published.num_train, published.num_test):
        raise DataError(
            f"{path}: {published.name} has {published.num_train} training and "
            f"{published.num_test} test examples, got {sizes[0]} and {sizes[1]}; "
            f"use a part of it as your own dataset, `npz:PATH`"
        )
    if published.sha256 is not None and fingerprint(arrays) != published.sha256:
        raise DataError(
            f"{path}: these are not the published images of {published.name} in their published "
            f"order (wrong checksum); get the file again, or use it as your own dataset, `npz:PATH`"
        )


def fingerprint(arrays: PackedArrays) -> str:
    """A checksum of images and labels, whatever file they came from."""
    digest = hashlib.sha256()
    for side in arrays:
        digest.update(side.x.data)
        digest.update(side.y.astype(np.uint8).data)
    return digest.hexdigest()


def digest(arrays: PackedArrays) -> str:
    """A checksum of all that a dataset says: images, labels and who owns them."""
    content = hashlib.sha256(fingerprint(arrays).encode())
    for side in arrays:
        content.update(side.clients.data)
    return content.hexdigest()


def summary(published: Published, arrays: PackedArrays) -> str:
    """How much there is, and of how many writers."""
    num_train, num_test = (len(side.y) for side in arrays)
    text = f"{num_train:,} training and {num_test:,} test examples"
    if published.clients is None:
        return text
    return f"{text} of {arrays.num_clients} {published.clients}"


def description(published: Published, arrays: PackedArrays) -> Description:
    """Of writers, who may be others than the paper's."""
    num_train, num_test = (len(side.y) for side in arrays)
    return published.describe(num_train, num_test, arrays.num_clients)
