"""The original files of CIFAR-10 and CIFAR-100, where torchvision puts them.

Archives are read in memory and nothing is unpacked to disk, so that no name inside them matters.
The files are pickles: they are opened only if their checksum is the published one.
"""

import hashlib
import pickle  # nosec B403
import tarfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcome_ray.datasets.checks import damaged
from fedcome_ray.datasets.download import Download
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.published import Originals, how_to_download
from fedcome_ray.datasets.torchvision_import import torchvision_datasets


class CifarFiles(NamedTuple):
    """Where the files of a CIFAR dataset are, and what is in them."""

    name: str
    torchvision_name: str  # of the class that has the checksums
    folder: str
    archive: str
    labels: str  # key of the labels in a file


def originals(its_files: CifarFiles) -> Originals:
    return Originals(
        are_present=partial(are_present, its_files),
        read=partial(read, its_files),
        how_to_get=partial(how_to_download, its_files.name, [its_files.archive]),
        downloads=partial(downloads, its_files),
    )


def are_present(its_files: CifarFiles, folder: Path) -> bool:
    return (folder / its_files.folder).is_dir() or (folder / its_files.archive).is_file()


def downloads(its_files: CifarFiles, folder: Path) -> list[Download]:
    """What torchvision would download, and where to."""
    published = _published(its_files)
    return [Download([published.url], folder / published.filename, published.tgz_md5)]


def _published(its_files: CifarFiles) -> Any:
    return getattr(torchvision_datasets(), its_files.torchvision_name)


def read(its_files: CifarFiles, folder: Path) -> dict[str, AnyArray]:
    """Images and labels as the files have them."""
    published = _published(its_files)
    sides = {"train": published.train_list, "test": published.test_list}
    origin = folder / its_files.folder
    names = [name for files in sides.values() for name, _ in files]
    if origin.is_dir():
        contents = _read_folder(origin, names)
    else:
        origin = folder / its_files.archive
        contents = _read_archive(origin, its_files.folder, names)
    arrays = {}
    for side, files in sides.items():
        batches = [_unpickle(origin, name, contents[name], md5) for name, md5 in files]
        arrays[f"x_{side}"] = np.concatenate([batch["data"] for batch in batches])
        arrays[f"y_{side}"] = np.concatenate([batch[its_files.labels] for batch in batches])
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
    batch: dict[str, AnyArray] = pickle.loads(content, encoding="latin1")  # nosec B301
    return batch
