import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcome_ray.datasets.own import contents
from fedcome_ray.errors import DataError

PATH = Path("mine.npz")


def arrays(**changes) -> dict[str, Any]:
    """Nothing to object to: 60 and 30 examples of 4 features, 3 classes, 5 clients."""
    rng = np.random.default_rng(0)
    found = {
        "x_train": rng.normal(size=(60, 4)).astype(np.float32),
        "y_train": np.arange(60) % 3,
        "client_train": np.arange(60) % 5,
        "x_test": rng.normal(size=(30, 4)).astype(np.float32),
        "y_test": np.arange(30) % 3,
        "client_test": np.arange(30) % 5,
        **changes,
    }
    return {name: array for name, array in found.items() if array is not None}


def seen(**changes) -> contents.Seen:
    return contents.of_arrays(PATH, arrays(**changes))


def pictures(*shape: int, dtype: type = np.uint8) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        f"x_{side}": rng.integers(0, 256, (count, *shape)).astype(dtype)
        for side, count in (("train", 60), ("test", 30))
    }


def test_the_table_says_what_there_is() -> None:
    table, warnings = seen()
    assert warnings == []
    assert table["training examples"] == "60"
    assert table["test examples"] == "30"
    assert table["features"] == "4"
    assert table["type"].startswith("float32: numbers from -")
    assert table["classes"] == "3"
    assert table["clients"] == "5, with 12 to 12 training and 6 to 6 test examples"


def test_names_are_used_where_there_are_any() -> None:
    table = seen(
        feature_names=np.array(["a", "b", "c", "d"]),
        class_names=np.array(["x", "y", "z"]),
        client_names=np.array(["one too few"]),
    ).table
    assert table["features"] == "4: a, b, c, d"
    assert table["classes"] == "3: x, y, z"


def test_pixels_and_tokens_are_told_apart() -> None:
    assert seen(**pictures(3, 8, 8)).table["type"] == "uint8: pixels, scaled to [0, 1]"
    assert seen(**pictures(3, 8, 8)).table["features"] == "3x8x8"
    tokens = pictures(7, dtype=np.int32)
    tokens["x_train"][0, 0], tokens["x_train"][0, 1] = 0, 255
    assert seen(**tokens).table["type"] == "int32: tokens from 0 to 255"
    assert seen(**tokens).warnings == []


def test_a_file_without_clients_says_who_decides() -> None:
    table, warnings = seen(client_train=None, client_test=None)
    assert "data.partition decides (dirichlet, 100 clients)" in table["clients"]
    assert warnings == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.arange(60) % 3 + 1}, "labels start at 1: class 0 has no training examples"),
        ({"y_train": np.arange(60) % 3 * 2}, "2 classes are without training examples: 1, 3"),
        ({"y_test": np.zeros(30, int)}, "2 classes are without test examples: 1, 2"),
        (
            {"y_test": np.zeros(30, int), "class_names": np.array(["x", "y", "z"])},
            "2 classes are without test examples: `y`, `z`",
        ),
        (
            {"y_train": np.zeros(60, int), "y_test": np.zeros(30, int)},
            "there is one class only",
        ),
        ({"y_train": np.arange(60)}, r"nearly as many classes \(60\) as training examples \(60\)"),
        (
            {"client_train": np.array([4, *np.arange(59) % 4])},
            "one client is with one training example: 4",
        ),
        (
            {"client_train": None, "client_test": None, "y_test": np.repeat([0, 1, 2], 10)},
            "the test examples are sorted by label",
        ),
        (pictures(8, 8, 3), "8x8x3 look like pictures with channels last; models take .* 3x8x8"),
        (pictures(1, 8, 8, dtype=np.float32), "far from a scale of 1: root mean square 14[0-9];"),
        (
            {"x_train": arrays()["x_train"] * [1, 100, 1, 1]},
            r"one feature is far from a scale of 1, the most: 1, root mean square 9\d|1\d\d",
        ),
        (
            {"x_train": arrays()["x_train"] * [1, 1e-6, 1, 1e-4]},
            "2 features are far from a scale of 1, the most: 1,",
        ),
        ({"x_train": arrays()["x_train"] * [1, 0, 0, 1]}, "2 features are the same .*: 1, 2"),
        ({"x_test": arrays()["x_train"][:30]}, "30 of 30 test examples are also training"),
        (
            {"x_train": np.full((60, 4), -1), "x_test": np.full((30, 4), 1)},
            "tokens count from 0, and the least is -1",
        ),
    ],
)
def test_what_looks_like_a_mistake_is_pointed_out(changes, message) -> None:
    assert any(re.search(message, warning) for warning in seen(**changes).warnings)


def test_pictures_may_have_a_border_of_one_colour() -> None:
    changes = pictures(1, 8, 8)
    for x in changes.values():
        x[..., 0] = 255
    assert seen(**changes).warnings == []


@pytest.mark.parametrize("count", [1, 4])
def test_pictures_with_channels_first_are_fine(count) -> None:
    assert seen(**pictures(count, 8, 3)).warnings == []


def test_what_cannot_work_is_an_error() -> None:
    with pytest.raises(DataError, match=r"mine\.npz: x_train must be finite .* example 3 is not"):
        seen(x_train=np.where(np.arange(60)[:, None] == 3, np.nan, arrays()["x_train"]))


def test_a_file_is_looked_at_like_its_arrays(tmp_path) -> None:
    found = arrays(class_names=np.array(["x", "y", "z"]))
    np.savez(tmp_path / "mine.npz", **found)
    assert contents.of_file(tmp_path / "mine.npz") == contents.of_arrays(PATH, found)
