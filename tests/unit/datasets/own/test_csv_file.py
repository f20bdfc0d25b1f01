import csv
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedcome_ray.datasets.own import csv_file
from fedcome_ray.errors import DataError

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "mine.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Printable, and nothing that spreadsheets take for a missing number.
texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=8)


@UNTIMED
@given(
    rows=st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), texts),
        min_size=1,
        max_size=8,
    ),
    separator=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_it_reads_what_pythons_own_writer_wrote(tmp_path, rows, separator, end) -> None:
    path = tmp_path / "mine.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
        writer.writerows([("number", "word"), *((repr(x), f"w{word}") for x, word in rows)])
    table = csv_file.read(path)
    assert table.names == ["number", "word"]
    assert table.numbers("number").tolist() == [np.float32(x) for x, _ in rows]
    assert table.identities("word").tolist() == [f"w{word}".rstrip("\0") for _, word in rows]


def test_it_agrees_with_pandas_on_numbers(tmp_path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "small": rng.normal(size=500) * 1e-30,
            "large": rng.normal(size=500) * 1e30,
            "whole": rng.integers(-5, 5, 500),
            "truth": rng.choice([True, False], 500),
        }
    )
    frame.to_csv(tmp_path / "mine.csv", index=False)
    table, read = csv_file.read(tmp_path / "mine.csv"), pd.read_csv(tmp_path / "mine.csv")
    for name in frame:
        assert np.array_equal(table.numbers(str(name)), read[name].to_numpy(np.float32))


def test_a_column_may_become_broader_late_in_the_file(tmp_path) -> None:
    rows = 400_000  # more than a block of the reader
    table = csv_file.read(write(tmp_path, "a,b\n" + "1,x\n" * rows + "1.5,y\n"))
    assert table.numbers("a")[-1] == 1.5
    assert table.num_rows == rows + 1


def test_the_mark_of_a_byte_order_is_no_part_of_a_name(tmp_path) -> None:
    assert csv_file.read(write(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n")).names == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty, or begins with an empty row"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n", "row 3 has 1 values and the header 2: `3`"),
        (b"a,b\n1,2\n3,4,5\n", "row 3 has 3 values and the header 2: `3,4,5`"),
        (b"a,a\n1,2\n", "two columns are called `a`"),
        (b"5.1,3.5\n4.9,3.0\n", "the first row must name the columns, got `5.1, 3.5`"),
        (b"a,b\n1,2\n\xff\n", "row 3 has 1 values and the header 2"),
        (b"a,b\n1,\xff\n", "column `b` is not UTF-8 text; save the file as UTF-8"),
        (b"\xff\xfea,b\n1,2\n", "the header is not UTF-8 text"),
        ("a,b\n1,2\n".encode("utf-16"), "is not a text file"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not a text file; a compressed one"),
    ],
)
def test_what_is_no_table_gets_one_line(tmp_path, content, message) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as error:
        csv_file.read(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / "none.csv"):
        with pytest.raises(DataError, match=f"cannot read {path}"):
            csv_file.read(path)


def test_a_file_larger_than_memory_is_not_begun(tmp_path) -> None:
    path = write(tmp_path, b"a,b\n1,2\n")
    os.truncate(path, 2**43)  # takes no room on the disk
    with pytest.raises(DataError, match=r"holds 8,796\.1 GB, more than this machine's memory"):
        csv_file.read(path)


@UNTIMED
@given(content=st.binary(max_size=200) | st.text('a,;"\n\r\t1.', max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_refused(tmp_path, content) -> None:
    with suppress(DataError):
        table = csv_file.read(write(tmp_path, content))
        for name in table.names:
            with suppress(DataError):
                table.numbers(name)
            with suppress(DataError):
                table.identities(name)
