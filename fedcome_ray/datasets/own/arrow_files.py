"""Tables as Hugging Face's `datasets` saves them, and Parquet: read with pyarrow alone.

`save_to_disk` writes a folder of Arrow streams, whose order is in `state.json`; of several splits,
a folder of such folders, whose names are in `dataset_dict.json`. Parquet is one file, or a folder
of files, whose names begin with their split if there are several: `train-00000-of-00002.parquet`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from fedcome_ray.datasets.checks import check_fits_memory, check_is_file
from fedcome_ray.datasets.own.table import Table, shown
from fedcome_ray.errors import DataError

ALL = "all"
"""The one split of what has none."""


def read(path: Path) -> dict[str, Table]:
    """The splits that there are."""
    if not path.is_dir():
        return {ALL: _read_parquet(path, [path])}
    if (path / "dataset_dict.json").exists():
        splits = _listed(path / "dataset_dict.json", lambda found: found["splits"])
        return {split: _read_saved(path / Path(split).name) for split in splits}
    if (path / "state.json").exists():
        return {ALL: _read_saved(path)}
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise DataError(
            f"{path} is neither a folder of `save_to_disk` (dataset_dict.json or state.json) nor "
            f"one of *.parquet"
        )
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(_split_of(file), []).append(file)
    return {split: _read_parquet(path, own) for split, own in by_split.items()}


def class_names(table: Table, label: str) -> list[str] | None:
    """What a column's numbers are called, where `datasets` has written it down."""
    try:
        about = json.loads((table.data.schema.metadata or {})[b"huggingface"])
        names = about["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return None  # nothing is said about it
    return [str(name) for name in names] if isinstance(names, list) else None


def _split_of(file: Path) -> str:
    split, _, _ = file.stem.partition("-")
    return split if split in {"train", "test", "validation"} else ALL


def _read_saved(folder: Path) -> Table:
    names = _listed(
        folder / "state.json", lambda found: [file["filename"] for file in found["_data_files"]]
    )
    files = [folder / Path(name).name for name in names]
    return _joined(folder, files, lambda file: pa.ipc.open_stream(file.read_bytes()).read_all())


def _read_parquet(path: Path, files: list[Path]) -> Table:
    return _joined(path, files, _read_parquet_file)


def _read_parquet_file(file: Path) -> Any:
    with parquet.ParquetFile(file) as opened:
        groups = map(opened.metadata.row_group, range(opened.metadata.num_row_groups))
        check_fits_memory(file, sum(group.total_byte_size for group in groups))
        return opened.read()


def _joined(path: Path, files: list[Path], read_file: Callable[[Path], Any]) -> Table:
    parts: list[Any] = []
    for file in files:
        check_is_file(file)
        check_fits_memory(file, file.stat().st_size)
        try:
            part = read_file(file)
            part.validate(full=True)  # else damaged offsets would be followed
        except OSError as error:
            raise DataError(f"cannot read {file}: {shown(error.strerror or error, 200)}") from None
        except pa.ArrowException as error:
            raise DataError(f"{file} is damaged or no such file: {shown(error, 200)}") from None
        if parts and not part.schema.equals(parts[0].schema):
            raise DataError(f"{file} has other columns than {files[0].name}")
        parts.append(part)
    if not parts:
        raise DataError(f"{path} has no data files")
    return Table(path, pa.concat_tables(parts), first_row=0)


def _listed(file: Path, choose: Callable[[Any], list[str]]) -> list[str]:
    """Names of files or folders that a JSON file lists."""
    check_is_file(file)
    try:
        names = choose(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{file} is not what `save_to_disk` writes; save the dataset again")
    return names
