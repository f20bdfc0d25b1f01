"""Tables as text: a row of column names, then rows of values."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from fedcome_ray.datasets.checks import check_fits_memory, check_is_file
from fedcome_ray.datasets.own.table import Table, not_utf8, shown
from fedcome_ray.errors import DataError

SEPARATORS = (",", ";", "\t")
BEGINNING = 2**16
WRONG_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
"""As PyArrow says it; its handler of such rows fails for bytes that are no text."""


def read(path: Path) -> Table:
    """The file, separated by whichever of comma, semicolon and tab its header has."""
    check_is_file(path)
    check_fits_memory(path, path.stat().st_size)
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
            file.seek(0)
            return _checked(path, _parse(path, file, beginning))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def _parse(path: Path, file: Any, beginning: bytes) -> Any:
    if b"\0" in beginning:
        raise DataError(f"{path} is not a text file; a compressed one must be unpacked first")
    header = beginning.splitlines()[0].decode(errors="replace") if beginning.strip() else ""
    if not header:
        raise DataError(f"{path} is empty, or begins with an empty row; expected column names")
    separator = next((one for one in SEPARATORS if one in header), SEPARATORS[0])
    try:
        return csv.read_csv(
            file,
            read_options=csv.ReadOptions(use_threads=False),  # with threads, rows have no numbers
            parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        )
    except pa.ArrowException as error:
        wrong = WRONG_ROW.search(str(error))
        if wrong is None:
            raise DataError(f"{path} is not a table: {shown(str(error), 200)}") from None
        number, expected, found, text = wrong.groups()
        raise DataError(
            f"{path}: row {number} has {found} values and the header {expected}: {shown(text)}"
        ) from None


def _checked(path: Path, data: Any) -> Table:
    table = Table(path, data, first_row=2)
    if all(_is_number(name) for name in table.names):
        raise DataError(
            f"{path}: the first row must name the columns, got {shown(', '.join(table.names))}"
        )
    for field in data.schema:
        if pa.types.is_binary(field.type):  # what pyarrow makes of bytes that are no text
            raise not_utf8(path, f"column {shown(field.name)}")
    return table


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
