import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fedcome_ray.datasets.own.table import Table, shown
from fedcome_ray.errors import DataError


def column(values: object, kind: pa.DataType | None = None) -> Table:
    return Table(Path("some"), pa.table({"a": pa.array(values, kind)}), first_row=0)


def picture(mode: str, size: tuple[int, int] = (3, 2)) -> bytes:
    content = io.BytesIO()
    Image.new(mode, size).save(content, "PNG")
    return content.getvalue()


def test_rows_are_numbered_as_in_the_file() -> None:
    assert "row 7:" in str(column([1]).complaint("a", 7, "no"))
    below_a_header = Table(Path("some"), pa.table({"a": [1]}), first_row=2)
    assert "row 9:" in str(below_a_header.complaint("a", 7, "no"))


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(25, 2)]
)
def test_numbers_of_all_types_are_numbers(kind) -> None:
    values = pa.array([1, 2, 3]).cast(kind)
    assert column(values).numbers("a").tolist() == [1.0, 2.0, 3.0]
    assert column(values).identities("a").tolist() == [1, 2, 3]


def test_large_numbers_tell_clients_apart() -> None:
    assert column([2**62, 2**62 + 1]).identities("a").tolist() == [2**62, 2**62 + 1]
    with pytest.raises(DataError, match="row 1: expected whole numbers"):
        column([1, 2**63 + 1], pa.uint64()).identities("a")


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_of_all_types_are_texts(kind) -> None:
    assert column(["x", "y", "x"], kind).identities("a").tolist() == ["x", "y", "x"]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)]
)
def test_lists_of_all_types_are_arrays(kind) -> None:
    read = column([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], kind).array("a")
    assert read.dtype == np.float32
    assert read.tolist() == [[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_a_part_of_a_table_is_read_as_that_part() -> None:
    whole = pa.table({"a": [[1.5], [2.5], [3.5]], "b": [1, 2, 3]})
    part = Table(Path("some"), whole.slice(1), first_row=0)
    assert part.array("a").tolist() == [[2.5], [3.5]]
    assert part.numbers("b").tolist() == [2, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [[1.0, 2.0], [3.0]],
            "row 1: expected lists of equal length, got 1 values where the first",
        ),
        ([[[1.0], [2.0]], [[1.0], [2.0, 3.0]]], "row 1: expected lists of equal length, got 2"),
        ([[], []], "row 0: expected lists of equal length, got 0"),
        ([[1.0], None], r"row 1: there is no value \(1 are missing\)"),
        ([[1.0], [None]], "row 1: there is no value"),
        ([[[1.0]], [None]], "row 1: "),
        ([[1.0, 2.0], [3.0, float("nan")]], "row 1: expected finite float32 numbers, got `nan`"),
        ([["x"], ["y"]], "row 0: expected a number, a list of numbers or a picture, got list"),
        ([{"z": 1}, {"z": 2}], "row 0: expected a number, a list of numbers or a picture, got str"),
        ([b"no picture", b"nor this"], "row 0: no picture: cannot identify image file"),
        ([picture("L"), picture("L")[:40]], "row 1: no picture"),
        ([picture("L"), picture("RGB")], "row 1: expected pictures of one size, got 3x2x3 where"),
        ([picture("L"), picture("L", (2, 3))], "row 1: .*got 1x3x2 where the first is 1x2x3"),
        ([picture("RGBA")], "row 0: no picture: mode RGBA, allowed: 1, L, P, RGB"),
        (
            [{"bytes": None, "path": "x.png"}, {"bytes": b"", "path": ""}],
            "row 0: the picture is in another file; embed it",
        ),
    ],
)
def test_unfit_examples_are_named_by_their_row(values, message) -> None:
    with pytest.raises(DataError, match=f"some: column `a`, {message}"):
        column(values).array("a")


def test_what_is_shown_is_one_short_line() -> None:
    assert shown("x" * 100) == f"`{'x' * 40}…`"
    assert "\n" not in shown("a\nb")
    assert shown(1.5) == "`1.5`"
