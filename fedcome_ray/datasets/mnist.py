"""MNIST, from the four files that torchvision gets.

LeCun et al., 1998. Files are read in memory and nothing is unpacked to disk.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from fedcome_ray.datasets import images
from fedcome_ray.datasets.checks import damaged
from fedcome_ray.datasets.download import Download
from fedcome_ray.datasets.images import PooledImages
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.partitions import PartitionConfig, SortedShards
from fedcome_ray.datasets.published import Originals, Published, how_to_download
from fedcome_ray.datasets.torchvision_import import torchvision_datasets

FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}

MOST_BYTES = 100_000_000
"""Of a file; the largest has half of it."""


class Mnist(PooledImages):
    """70,000 handwritten digits of 28x28 pixels."""

    dataset: Literal["mnist"] = "mnist"
    partition: PartitionConfig = Field(default_factory=SortedShards)


def are_present(folder: Path) -> bool:
    return all(_find(folder, file) for file in FILES.values())


def read(folder: Path) -> dict[str, AnyArray]:
    """Images and labels as the files have them."""
    paths = {key: _find(folder, file) for key, file in FILES.items()}
    return {key: read_idx(path) for key, path in paths.items() if path}


def downloads(folder: Path) -> list[Download]:
    """What torchvision would download, and where to."""
    mnist = torchvision_datasets().MNIST
    return [
        Download([mirror + file for mirror in mnist.mirrors], _raw(folder) / file, md5)
        for file, md5 in mnist.resources
    ]


def how_to_get(folder: Path) -> list[str]:
    return how_to_download("mnist", [f"{file}.gz" for file in FILES.values()], folder)


def _raw(folder: Path) -> Path:
    return folder / "MNIST" / "raw"


def _find(folder: Path, file: str) -> Path | None:
    """Where torchvision puts a file, or where somebody laid it by hand."""
    places = [_raw(folder) / file, _raw(folder) / f"{file}.gz"]
    places += [folder / file, folder / f"{file}.gz"]
    return next((place for place in places if place.is_file()), None)


def read_idx(path: Path) -> AnyArray:
    """A file of MNIST's format: type, number of axes, their lengths, bytes."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(MOST_BYTES)  # a small file may unpack to anything
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


PUBLISHED = Published(
    name="mnist",
    feature_shape=(1, 28, 28),
    num_classes=10,
    num_train=60_000,
    num_test=10_000,
    mean=(0.1307,),
    std=(0.3081,),
    sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    originals=Originals(are_present, read, how_to_get, downloads),
)

DATASET = images.dataset(Mnist, PUBLISHED, "MNIST")
