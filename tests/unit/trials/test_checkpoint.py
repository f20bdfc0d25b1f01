"""Checkpoints: what is read is what was written, and a crash leaves the old file."""

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from fedcome_ray.errors import StorageError
from fedcome_ray.trials import checkpoint


class Inner(NamedTuple):
    matrix: torch.Tensor
    table: np.ndarray[Any, Any]


class Outer(NamedTuple):
    count: int
    share: float
    inner: Inner
    nothing: tuple[()]


class Nothing(NamedTuple):
    pass


STATE = Outer(
    count=2**40,
    share=0.1 + 0.2,
    inner=Inner(torch.tensor([[1.5, -0.0], [float("nan"), 3e-45]]), np.array([[1], [2]], np.int64)),
    nothing=Nothing(),
)


def through_a_file(state: Any, path: Path) -> Any:
    checkpoint.write(path, checkpoint.flatten(state, "state"), {})
    return checkpoint.rebuild(state, checkpoint.read(path)[0], "state")


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def test_a_nested_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    read = through_a_file(STATE, tmp_path / "file")
    assert (read.count, read.share) == (STATE.count, STATE.share)
    assert bits(read.inner.matrix) == bits(STATE.inner.matrix)
    assert bits(read.inner.table) == bits(STATE.inner.table)


def test_the_types_come_back(tmp_path: Path) -> None:
    read = through_a_file(STATE, tmp_path / "file")
    assert [type(item) for item in read] == [int, float, Inner, Nothing]
    assert isinstance(read.inner.matrix, torch.Tensor)
    assert isinstance(read.inner.table, np.ndarray)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
def test_every_type_and_shape_of_array_is_kept(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    array = np.ones(shape, dtype)
    checkpoint.write(tmp_path / "file", {"a": array}, {})
    read = checkpoint.read(tmp_path / "file")[0]["a"]
    assert (read.dtype, read.shape) == (array.dtype, shape)
    assert bits(read) == bits(array)


def test_views_are_saved_as_they_look(tmp_path: Path) -> None:
    matrix = torch.arange(6.0).reshape(2, 3)
    state = Inner(matrix.t(), matrix.numpy()[:, ::-1])
    read = through_a_file(state, tmp_path / "file")
    assert read.matrix.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert read.table.tolist() == [[2, 1, 0], [5, 4, 3]]


def test_a_template_says_the_types_and_not_the_sizes() -> None:
    template = STATE._replace(inner=Inner(torch.empty(0), np.empty(0)))
    arrays = checkpoint.flatten(STATE, "state")
    assert checkpoint.rebuild(template, arrays, "state").inner.matrix.shape == (2, 2)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    checkpoint.write(path, {"a": np.zeros(3)}, {})

    def fail_half_way(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"cannot write .*file: No space left"):
        checkpoint.replace(path, fail_half_way)
    assert checkpoint.read(path)[0]["a"].tolist() == [0, 0, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_leaves_no_temporary_file(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "file", {"a": np.zeros(3)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cut_file_is_not_read_as_something_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    checkpoint.write(path, {"a": np.zeros(100)}, {})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(SafetensorError):
        checkpoint.read(path)[0]


def test_files_that_are_replaced_together_are_all_kept_by_the_disk_before_any_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_when_synced: list[set[str]] = []
    monkeypatch.setattr(
        os, "fsync", lambda _: there_when_synced.append({path.name for path in tmp_path.iterdir()})
    )
    names = ("a", "b")
    checkpoint.replace_all({tmp_path / name: partial(Path.write_text, data=name) for name in names})
    temporary = {f".{name}.{os.getpid()}" for name in names}
    assert there_when_synced == [temporary, temporary]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "a", "b": "b"}
