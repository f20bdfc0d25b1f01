"""Datasets as LEAF's preprocessing writes them: JSON files of users in the folders train and test.

Caldas et al., LEAF: A Benchmark for Federated Settings. https://leaf.cmu.edu
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.checks import check_is_file
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.errors import DataError

Decoded = tuple[NDArray[np.uint8], NDArray[np.int64]]  # examples and their labels
Decode = Callable[[Any], Decoded]
"""From what LEAF says of one user; a ValueError says what is wrong with it."""
Users = dict[str, Decoded]


def find(folder: Path, name: str) -> Path | None:
    """The folder that has `train` and `test`: this one, or where LEAF puts them inside it."""
    places = (folder, folder / "data", folder / name, folder / name / "data")
    return next((place for place in places if _files(place, "train")), None)


def read(name: str, decode: Decode, where: Path) -> dict[str, AnyArray]:
    """All users of all files that there are, in the order of their ids.

    Train and test files are joined by user: their order in the folders means nothing.
    """
    folder = find(where, name)
    if folder is None:
        raise DataError(f"{where} has no LEAF files: expected the folders train and test of *.json")
    train, test = (_read_side(folder, side, decode) for side in ("train", "test"))
    alone = sorted(train.keys() ^ test.keys())
    if alone:
        side, other = ("train", "test") if alone[0] in train else ("test", "train")
        raise DataError(
            f"{folder}: user {alone[0]} is in {side} and not in {other} ({len(alone)} users "
            f"are in one of them only); put the files of the same numbers into both folders"
        )
    users = sorted(train)
    return {**_join(train, users, "train"), **_join(test, users, "test")}


def _files(folder: Path, side: str) -> list[Path]:
    return sorted((folder / side).glob("*.json"))


def _read_side(folder: Path, side: str, decode: Decode) -> Users:
    users: Users = {}
    for path in _files(folder, side):
        for user, data in _read_users(path).items():
            if user in users:
                raise DataError(f"{path}: user {user} is in another file of {side} as well")
            try:
                users[user] = decode(data)
            except ValueError as error:
                raise DataError(f"{path}: user {user} {error}") from None
    return users


def _read_users(path: Path) -> dict[str, Any]:
    check_is_file(path)
    try:
        users: dict[str, Any] = dict(json.loads(path.read_bytes())["user_data"])
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # the last: too deep
        raise DataError(
            f"{path} is not a whole JSON file of LEAF ({type(error).__name__}: {error}); "
            f"copy it again"
        ) from None
    if not users:
        raise DataError(f"{path} has no users; remove it")
    return users


def _join(users: Users, order: list[str], side: str) -> dict[str, AnyArray]:
    examples = [users[user] for user in order]
    return {
        f"x_{side}": np.concatenate([x for x, _ in examples]),
        f"y_{side}": np.concatenate([y for _, y in examples]),
        f"client_{side}": np.repeat(np.arange(len(order)), [len(y) for _, y in examples]),
    }
