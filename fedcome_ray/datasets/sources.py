"""Where a published dataset comes from: its packed file, or else the original files, packed now."""

import logging
import os
from pathlib import Path
from typing import Literal

from platformdirs import user_cache_path

from fedcome_ray.datasets import npz_files, packed
from fedcome_ray.datasets.packed import PackedArrays
from fedcome_ray.datasets.published import Published
from fedcome_ray.errors import DataError

logger = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "FEDCOME_DATA_DIR"
State = Literal["packed", "original", "missing"]


def data_folder(data_dir: Path | None) -> Path:
    """The folder asked for, or that of the environment, or this platform's cache."""
    chosen = data_dir or os.environ.get(ENVIRONMENT_VARIABLE)
    folder = Path(chosen).expanduser() if chosen else user_cache_path("fedcome_ray")
    try:
        next(folder.iterdir(), None)
    except FileNotFoundError:
        pass  # it is made when there is something to put into it
    except OSError as error:
        raise DataError(f"cannot read the data folder {folder}: {error.strerror}") from None
    return folder


def state(published: Published, folder: Path) -> State:
    if packed.pack_path(published, folder).is_file():
        return "packed"
    return "original" if published.originals.are_present(folder) else "missing"


def check_available(published: Published, _config: object, data_dir: Path | None) -> None:
    """Raise the error of missing files, whatever the settings."""
    _check_present(published, data_folder(data_dir))


def _check_present(published: Published, folder: Path) -> None:
    if state(published, folder) == "missing":
        raise missing(published, folder)


def open_arrays(published: Published, folder: Path) -> PackedArrays:
    """A published dataset; the first time, it is decoded and packed."""
    if packed.pack_path(published, folder).is_file():
        return packed.load(published, folder)
    _check_present(published, folder)
    logger.info("%s: packing the original files in %s, once", published.name, folder)
    arrays = packed.checked(published, published.originals.read(folder), folder)
    logger.info("%s: %s", published.name, packed.summary(published, arrays))
    try:
        packed.save(published, arrays, folder)
    except DataError as error:
        # Somebody else's folder of datasets is often read-only; the data is good all the same.
        logger.warning("%s is decoded at every start: %s", published.name, error)
        return arrays
    return packed.load(published, folder)


def import_arrays(published: Published, origin: Path, folder: Path) -> PackedArrays:
    """Pack a dataset from a file of arrays, or from a folder of its original files."""
    if origin.is_dir() and published.originals.are_imported:
        columns = published.originals.read(origin)
    else:
        columns = npz_files.read(origin, packed.array_names(published), optional=["writers"])
    arrays = packed.checked(published, columns, origin)
    packed.save(published, arrays, folder)
    return arrays


def missing(published: Published, folder: Path) -> DataError:
    """What is missing, how to get it, where to put it."""
    name = published.name
    return DataError(
        "\n  ".join(
            [
                f"the dataset {name} is not in {folder}",
                *published.originals.how_to_get(folder),
                f"arrays:   python -m fedcome_ray.data import {name} --from FILE.npz",
                f"elsewhere: give its folder with --data-dir or {ENVIRONMENT_VARIABLE}",
                "`--profile quick` needs no files: its data comes with the installed packages",
            ]
        )
    )
