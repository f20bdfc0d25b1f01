"""The original files of MNIST, CIFAR-10 and CIFAR-100, where torchvision puts them.

Archives are read in memory and nothing is unpacked to disk, so that no name inside them matters.
CIFAR's files are pickles: they are opened only if their checksum is the published one.
"""

import gzip
import hashlib
import math
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcome_ray.datasets.download import Download
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.torchvision_import import torchvision_datasets
from fedcome_ray.errors import DataError

MNIST_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


class Cifar(NamedTuple):
    """Where the files of a CIFAR dataset are, and what is in them."""

    folder: str
    archive: str
    labels: str  # key of the labels in a file


CIFAR = {
    "cifar10": Cifar("cifar-10-batches-py", "cifar-10-python.tar.gz", "labels"),
    "cifar100": Cifar("cifar-100-python", "cifar-100-python.tar.gz", "fine_labels"),
}


def expected(name: str) -> list[str]:
    """The files to lay into the data folder by hand."""
    if name == "mnist":
        return [f"{file}.gz" for file in MNIST_FILES.values()]
    return [CIFAR[name].archive]


def are_present(name: str, folder: Path) -> bool:
    if name == "mnist":
        return all(_mnist_path(folder, file) for file in MNIST_FILES.values())
    return (folder / CIFAR[name].folder).is_dir() or (folder / CIFAR[name].archive).is_file()


def downloads(name: str, folder: Path) -> list[Download]:
    """What torchvision would download, and where to."""
    if name == "mnist":
        mnist = torchvision_datasets().MNIST
        return [
            Download([mirror + file for mirror in mnist.mirrors], _mnist_folder(folder) / file, md5)
            for file, md5 in mnist.resources
        ]
    cifar = _torchvision_cifar(name)
    return [Download([cifar.url], folder / cifar.filename, cifar.tgz_md5)]


def read(name: str, folder: Path) -> dict[str, AnyArray]:
    """Images and labels as the files have them."""
    if name == "mnist":
        paths = {key: _mnist_path(folder, file) for key, file in MNIST_FILES.items()}
        return {key: read_idx(path) for key, path in paths.items() if path}
    published = _torchvision_cifar(name)
    sides = {"train": published.train_list, "test": published.test_list}
    return read_cifar(CIFAR[name], folder, sides)


def _mnist_folder(folder: Path) -> Path:
    return folder / "MNIST" / "raw"


def _mnist_path(folder: Path, file: str) -> Path | None:
    places = [_mnist_folder(folder) / file, _mnist_folder(folder) / f"{file}.gz"]
    places += [folder / file, folder / f"{file}.gz"]
    return next((place for place in places if place.is_file()), None)


def _torchvision_cifar(name: str) -> Any:
    datasets = torchvision_datasets()
    return {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]


def read_idx(path: Path) -> AnyArray:
    """A file of MNIST's format: type, number of axes, their lengths, bytes."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, str(error)) from None
    num_axes = content[3] if len(content) > 3 else 0
    start = 4 + 4 * num_axes
    if content[:3] != b"\x00\x00\x08" or num_axes not in {1, 3} or len(content) < start:
        raise damaged(path, "not a file of labels or images in the idx format")
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist()
    if len(content) != start + math.prod(shape):
        raise damaged(path, f"{len(content)} bytes instead of {start + math.prod(shape)}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_cifar(
    layout: Cifar, folder: Path, sides: dict[str, Sequence[tuple[str, str]]]
) -> dict[str, AnyArray]:
    """Images and labels of pickled files; `sides` has the files and checksums of each side."""
    origin = folder / layout.folder
    names = [file for files in sides.values() for file, _ in files]
    if origin.is_dir():
        contents = _read_folder(origin, names)
    else:
        origin = folder / layout.archive
        contents = _read_archive(origin, layout.folder, names)
    arrays = {}
    for side, files in sides.items():
        batches = [_unpickle(origin, file, contents[file], md5) for file, md5 in files]
        arrays[f"x_{side}"] = np.concatenate([batch["data"] for batch in batches])
        arrays[f"y_{side}"] = np.concatenate([batch[layout.labels] for batch in batches])
    return arrays


def _read_folder(origin: Path, names: Sequence[str]) -> dict[str, bytes]:
    try:
        return {name: (origin / name).read_bytes() for name in names}
    except OSError as error:
        raise damaged(origin, str(error)) from None


def _read_archive(archive: Path, inside: str, names: Sequence[str]) -> dict[str, bytes]:
    contents = {}
    try:
        with tarfile.open(archive) as tar:
            for name in names:
                file = tar.extractfile(f"{inside}/{name}")
                contents[name] = file.read() if file else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error, KeyError) as error:
        raise damaged(archive, str(error)) from None
    return contents


def _unpickle(origin: Path, name: str, content: bytes, md5: str) -> dict[str, AnyArray]:
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise damaged(origin, f"wrong checksum of {name}")
    batch: dict[str, AnyArray] = pickle.loads(content, encoding="latin1")
    return batch


def damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is damaged ({reason}); delete it and get it again")
