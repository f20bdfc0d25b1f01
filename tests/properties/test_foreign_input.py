"""Whatever users write, or a disk does to a file: one line that says what is wrong, or it works."""

import contextlib
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from fedcome_ray import tune
from fedcome_ray.datasets.mnist import read_idx
from fedcome_ray.errors import DataError, UserError
from fedcome_ray.experiments.grid import defaults
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.launch.start import read_params
from fedcome_ray.run import main as run_main
from fedcome_ray.trials import checkpoint

some = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

NAMES = [*flatten(defaults()), "method.mu", "sampler.name", "data.alpha", "case", "method", "local"]
SCALARS = [
    "0x_", "2024-99-99", "!!int", "!!bool", "1e300", "-1e300", ".inf", ".nan", "~", "-1", "0",
    "true", "full", "fedprox", "synthetic", "femnist", "npz:", "npz:/", "mlp", "conv2", "1.5",
    "dirichlet", "similarity", "{}", "[]", "[[1]]", "{a: b}", "&a [*a]", "1_000", "0o7", "1:30",
    "=", "?", "- ", ",", ": ", "#", "'", '"', "\\", "@", "`", "%", "|", ">", "\u00b2", "\u2028",
]  # fmt: skip
numbers = st.integers() | st.floats() | st.sampled_from([2**31, 2**63, 2**64, 10**400, 1e39, 1e-45])
scalars = st.sampled_from(SCALARS) | st.text(max_size=20) | numbers.map(str)
names = st.sampled_from(NAMES) | st.text(max_size=10)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=8) | st.dates()
values = st.recursive(
    leaves | st.sampled_from(["fedprox", "mlp", "digits", "synthetic", "similarity"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | leaves, inner, max_size=3),
    max_leaves=8,
)
by_name = st.dictionaries(names, values, max_size=3)
axes = st.dictionaries(names, st.lists(values, max_size=3), max_size=3)
grids = st.fixed_dictionaries(
    {},
    optional={
        "description": values,
        "base": by_name | values,
        "axes": axes | values,
        "profiles": st.dictionaries(
            st.sampled_from(["quick", "mini"]),
            st.fixed_dictionaries({}, optional={"set": by_name, "axes": axes}) | values,
            max_size=2,
        ),
        "space": st.dictionaries(names, by_name, max_size=2),
        "measure": values,
    },
)


def answer(main: Callable[[list[str]], int], *arguments: str) -> None:
    """Let a command show what it was told; it may only say that it cannot."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments, "--show"])
    said = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
    assert (code, len(said)) in {(0, 0), (2, 1)}
    assert len(err.getvalue()) < 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


@some
@given(names, scalars)
def test_a_setting_is_taken_or_refused(folder: Path, name: str, value: str) -> None:
    answer(run_main, f"--set={name}={value}", "--output", str(folder))


@some
@given(names, st.lists(scalars, min_size=1, max_size=4))
def test_an_axis_is_taken_or_refused(name: str, texts: list[str]) -> None:
    answer(tune.main, f"--axis={name}={','.join(texts)}")


@some
@given(grids)
@example({"axes": {f"local.{i}": [0, 1, 2] for i in range(60)}})
def test_a_grid_is_taken_or_refused(folder: Path, content: Any) -> None:
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    answer(tune.main, "--grid", str(path))
    answer(tune.main, "--axis=seed=0,1", "--overlay", str(path))


@some
@given(st.text(max_size=60) | st.lists(scalars, max_size=8).map("".join) | st.binary(max_size=60))
def test_a_file_that_may_be_no_grid_is_taken_or_refused(folder: Path, content: Any) -> None:
    path = folder / "grid.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
    answer(tune.main, "--grid", str(path))


@some
@given(values | by_name | by_name.map(lambda own: {**defaults(), **own}))
def test_a_trial_to_repeat_is_taken_or_refused(folder: Path, content: Any) -> None:
    (folder / "trial.json").write_text(json.dumps(content, default=str, skipkeys=True))
    answer(run_main, "--from", str(folder), "--output", str(folder))


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """Cut off, or with some bytes replaced."""
    if data.draw(st.booleans()):
        return content[: data.draw(st.integers(0, len(content) - 1))]
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    return bytes(changed)


@some
@given(st.data())
def test_a_damaged_model_is_read_as_finite_numbers_or_refused(
    folder: Path, data: st.DataObject
) -> None:
    path = folder / "model.safetensors"
    save_file({"params": torch.arange(6.0)}, path)
    path.write_bytes(damaged(path.read_bytes(), data))
    said = "--init-model: "
    try:
        assert read_params(path).isfinite().all()
    except UserError as error:
        said = str(error)
    assert said.startswith("--init-model: ")


@some
@given(st.data())
def test_a_damaged_checkpoint_is_never_taken(folder: Path, data: st.DataObject) -> None:
    path = folder / "checkpoint.safetensors"
    arrays = {"server.params": np.arange(5.0), "clients.ids": np.arange(3)}
    checkpoint.write(path, arrays, {"computed_with": "[]"})
    whole = path.read_bytes()
    read, notes = checkpoint.read(path)
    assert notes == {"computed_with": "[]"}
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
    path.write_bytes(damaged(whole, data))
    if path.read_bytes() != whole:
        with pytest.raises(checkpoint.DAMAGE):
            checkpoint.read(path)


def idx(shape: list[int], pixels: bytes) -> bytes:
    """A file of MNIST's format."""
    lengths = b"".join(length.to_bytes(4, "big") for length in shape)
    return bytes([0, 0, 8, len(shape)]) + lengths + pixels


def write_idx(folder: Path, content: bytes, *, is_packed: bool) -> Path:
    path = folder / ("images.gz" if is_packed else "images")
    path.write_bytes(gzip.compress(content) if is_packed else content)
    return path


lengths = st.integers(0, 4)
shapes = st.tuples(lengths) | st.tuples(lengths, lengths, lengths)


@some
@given(shapes, st.booleans(), st.data())
def test_a_file_of_mnists_format_is_read_or_if_damaged_refused(
    folder: Path, shape: tuple[int, ...], is_packed: bool, data: st.DataObject
) -> None:
    pixels = bytes(range(math.prod(shape)))
    path = write_idx(folder, idx(list(shape), pixels), is_packed=is_packed)
    array = read_idx(path)
    assert (array.shape, array.tobytes()) == (shape, pixels)
    path.write_bytes(damaged(path.read_bytes(), data))
    read_or_refuse(path)


@some
@given(st.binary(max_size=40), st.booleans())
@example(idx([2**32 - 1] * 3, b"123456789"), False)
@example(idx([2, 2], b"1234"), False)
@example(bytes(200_000_000), True)
def test_a_file_that_may_not_have_mnists_format_is_read_or_refused(
    folder: Path, content: bytes, is_packed: bool
) -> None:
    read_or_refuse(write_idx(folder, content, is_packed=is_packed))


def read_or_refuse(path: Path) -> None:
    said = str(path)
    try:
        assert read_idx(path).dtype == np.uint8
    except DataError as error:
        said = str(error)
    assert str(path) in said
    assert len(said) < 1_000
