"""Where a published dataset comes from: its packed file, or else the original files, packed now."""

import logging
import os
from pathlib import Path

from platformdirs import user_cache_path

from fedcome_ray.datasets import leaf, npz_files, originals, packed
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.packed import Arrays
from fedcome_ray.datasets.published import FACTS
from fedcome_ray.errors import DataError

logger = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "FEDCOME_DATA_DIR"


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


def state(name: str, folder: Path) -> str:
    """In a few words, for a table."""
    if name not in FACTS:
        return "none needed"
    if packed.pack_path(name, folder).is_file():
        return "packed"
    return "original" if originals_are_present(name, folder) else "missing"


def check_available(name: str, folder: Path) -> None:
    if state(name, folder) == "missing":
        raise missing(name, folder)


def originals_are_present(name: str, folder: Path) -> bool:
    if name == "femnist":
        return leaf.find(folder) is not None
    return originals.are_present(name, folder)


def open_arrays(name: str, folder: Path) -> Arrays:
    """A published dataset; the first time, it is decoded and packed."""
    if packed.pack_path(name, folder).is_file():
        return packed.load(name, folder)
    check_available(name, folder)
    logger.info("%s: packing the original files in %s, once", name, folder)
    arrays = packed.checked(name, _read_originals(name, folder), folder)
    logger.info("%s: %s", name, summary(name, arrays))
    try:
        packed.save(name, arrays, folder)
    except DataError as error:
        # Somebody else's folder of datasets is often read-only; the data is good all the same.
        logger.warning("%s is decoded at every start: %s", name, error)
        return arrays
    return packed.load(name, folder)


def import_arrays(name: str, origin: Path, folder: Path) -> Arrays:
    """Pack a dataset from a file of arrays, or FEMNIST from a folder of LEAF's files."""
    if origin.is_dir() and name == "femnist":
        columns = leaf.read(origin)
    else:
        columns = npz_files.read(origin, packed.array_names(name), optional=["writers"])
    arrays = packed.checked(name, columns, origin)
    packed.save(name, arrays, folder)
    return arrays


def _read_originals(name: str, folder: Path) -> dict[str, AnyArray]:
    return leaf.read(folder) if name == "femnist" else originals.read(name, folder)


def summary(name: str, arrays: Arrays) -> str:
    """How much there is; of FEMNIST, how many writers."""
    num_train, num_test = (len(side.y) for side in arrays)
    text = f"{num_train:,} training and {num_test:,} test examples"
    if not FACTS[name].num_writers:
        return text
    writers = 1 + arrays.train.clients.max()
    return f"{text} of {writers} writers (the paper has {FACTS[name].num_writers})"


def missing(name: str, folder: Path) -> DataError:
    """What is missing, how to get it, where to put it."""
    if name == "femnist":
        remedies = [
            "make it:  LEAF's `preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then put its "
            f"folders train and test (JSON files) into {folder / 'femnist'}"
        ]
    else:
        files = ", ".join(originals.expected(name))
        remedies = [
            f"download: python -m fedcome_ray.data download {name}",
            f"by hand:  put {files} into {folder}",
        ]
    return DataError(
        "\n  ".join(
            [
                f"the dataset {name} is not in {folder}",
                *remedies,
                f"arrays:   python -m fedcome_ray.data import {name} --from FILE.npz",
                f"elsewhere: give its folder with --data-dir or {ENVIRONMENT_VARIABLE}",
                "`--profile quick` needs no files: its data comes with the installed packages",
            ]
        )
    )
