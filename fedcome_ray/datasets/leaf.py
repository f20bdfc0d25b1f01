"""FEMNIST as LEAF's preprocessing writes it: JSON files of writers in the folders train and test.

Caldas et al., LEAF: A Benchmark for Federated Settings. https://leaf.cmu.edu
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.errors import DataError

Writers = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]


def find(folder: Path) -> Path | None:
    """The folder that has `train` and `test`: this one, or where LEAF puts them inside it."""
    places = (folder, folder / "data", folder / "femnist", folder / "femnist" / "data")
    return next((place for place in places if _files(place, "train")), None)


def read(where: Path) -> dict[str, AnyArray]:
    """All writers of all files that there are, in the order of their ids.

    Train and test files are joined by writer: their order in the folders means nothing.
    """
    folder = find(where)
    if folder is None:
        raise DataError(f"{where} has no LEAF files: expected the folders train and test of *.json")
    train, test = _read_side(folder, "train"), _read_side(folder, "test")
    alone = sorted(train.keys() ^ test.keys())
    if alone:
        side, other = ("train", "test") if alone[0] in train else ("test", "train")
        raise DataError(
            f"{folder}: writer {alone[0]} is in {side} and not in {other} ({len(alone)} writers "
            f"are in one of them only); put the files of the same numbers into both folders"
        )
    writers = sorted(train)
    return {**_join(train, writers, "train"), **_join(test, writers, "test")}


def _files(folder: Path, side: str) -> list[Path]:
    return sorted((folder / side).glob("*.json"))


def _read_side(folder: Path, side: str) -> Writers:
    writers: Writers = {}
    for path in _files(folder, side):
        for writer, data in _read_users(path).items():
            if writer in writers:
                raise DataError(f"{path}: writer {writer} is in another file of {side} as well")
            writers[writer] = _examples(path, writer, data)
    return writers


def _read_users(path: Path) -> dict[str, Any]:
    try:
        users: dict[str, Any] = dict(json.loads(path.read_bytes())["user_data"])
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a whole JSON file of LEAF ({type(error).__name__}: {error}); "
            f"copy it again"
        ) from None
    if not users:
        raise DataError(f"{path} has no writers; remove it")
    return users


def _examples(path: Path, writer: str, data: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        levels = np.array(data["x"], dtype=np.float64).reshape(-1, 1, 28, 28) * 255
        labels = np.array(data["y"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: writer {writer} has no images of 28x28 ({error})") from None
    if len(levels) != labels.size or labels.size == 0:
        raise DataError(f"{path}: writer {writer} has {len(levels)} images, {labels.size} labels")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: the labels of writer {writer} are not a list of whole numbers")
    pixels = np.round(levels)
    # LEAF divides bytes by 255; anything else would lose precision here, NaN its meaning.
    if not np.all((np.abs(pixels - levels) < 0.01) & (pixels >= 0) & (pixels <= 255)):
        raise DataError(f"{path}: the pixels of writer {writer} are not multiples of 1/255 in 0..1")
    return pixels.astype(np.uint8), labels.astype(np.int64)


def _join(writers: Writers, order: list[str], side: str) -> dict[str, AnyArray]:
    examples = [writers[writer] for writer in order]
    return {
        f"x_{side}": np.concatenate([x for x, _ in examples]),
        f"y_{side}": np.concatenate([y for _, y in examples]),
        f"client_{side}": np.repeat(np.arange(len(order)), [len(y) for _, y in examples]),
    }
