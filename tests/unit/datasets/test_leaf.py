import json
from pathlib import Path

import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import leaf, sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import LEAF_TRAIN, published, write_leaf


def shard(folder, side) -> Path:
    return next((folder / "femnist" / side).glob("all_data_0_*.json"))


def rewrite(path, change) -> None:
    content = json.loads(path.read_text())
    change(content["user_data"])
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("inside", ["", "data", "femnist", "femnist/data"])
def test_leafs_folder_is_found(tmp_path, inside) -> None:
    write_leaf(tmp_path / inside, "train", LEAF_TRAIN)
    assert leaf.find(tmp_path, "femnist") == tmp_path / inside


def test_a_user_without_test_samples_is_named(leaf_folder) -> None:
    shard(leaf_folder, "test").unlink()
    with pytest.raises(DataError, match=r"user f11 is in train and not in test .*both folders"):
        datasets.load(datasets.Femnist(), leaf_folder)


def test_a_user_in_two_files_is_named(leaf_folder) -> None:
    write_leaf(leaf_folder / "femnist", "train", [*LEAF_TRAIN, {"f03": [1]}])
    with pytest.raises(DataError, match="user f03 is in another file"):
        datasets.load(datasets.Femnist(), leaf_folder)


def test_a_folder_without_files_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match="no LEAF files"):
        sources.import_arrays(published("femnist"), tmp_path, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        '{"users": ["f03"], "user_',
        "[1, 2]",
        '{"users": []}',
        '{"user_data": null}',
        '{"user_data": [1]}',
        '{"user_data": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_a_damaged_file_is_named(leaf_folder, content) -> None:
    path = shard(leaf_folder, "train")
    path.write_text(content)
    with pytest.raises(DataError, match="not a whole JSON file of LEAF") as error:
        published("femnist").originals.read(leaf_folder)
    assert str(path) in str(error.value)


def test_a_file_without_users_is_named(leaf_folder) -> None:
    path = shard(leaf_folder, "train")
    path.write_text('{"user_data": {}}')
    with pytest.raises(DataError, match=f"{path} has no users"):
        published("femnist").originals.read(leaf_folder)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"x": [[0.0] * 783], "y": [1]}, "no images of 28x28"),
        ({"x": [[0.0] * 784], "y": [1, 2]}, "1 images, 2 labels"),
        ({"x": [], "y": []}, "0 images, 0 labels"),
        ({"y": [1]}, "no images of 28x28"),
        ({"x": [[0.0] * 784], "y": 3}, "labels that are not a list of whole numbers"),
        ({"x": [[0.0] * 784], "y": [3.7]}, "labels that are not a list of whole numbers"),
        ({"x": [[0.0] * 784], "y": [10**30]}, "labels that are not a list of whole"),
        ({"x": [[float("nan")] * 784], "y": [1]}, "not multiples of 1/255"),
        ({"x": [[1.5] * 784], "y": [1]}, "not multiples of 1/255"),
        ({"x": [[0.5] * 784], "y": [1]}, "not multiples of 1/255"),
    ],
)
def test_unfit_samples_are_named(leaf_folder, user, message) -> None:
    rewrite(shard(leaf_folder, "train"), lambda users: users.update(f03=user))
    with pytest.raises(DataError, match=message) as error:
        published("femnist").originals.read(leaf_folder)
    assert "user f03" in str(error.value)


def test_a_label_out_of_range_is_named(leaf_folder) -> None:
    rewrite(shard(leaf_folder, "train"), lambda users: users["f03"].update(y=[62]))
    with pytest.raises(DataError, match="y_train must be from 0 to 61, got 62"):
        datasets.load(datasets.Femnist(), leaf_folder)
