import json

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import leaf, packed, sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import leaf_images, write_leaf

TRAIN = [{"f20": [1, 2, 3], "f03": [61]}, {"f11": [5, 6]}]
TEST = [{"f11": [7]}, {"f03": [8], "f20": [9, 10]}]


@pytest.fixture
def folder(tmp_path):
    write_leaf(tmp_path / "femnist", "train", TRAIN)
    write_leaf(tmp_path / "femnist", "test", TEST)
    return tmp_path


def shard(folder, side):
    return next((folder / "femnist" / side).glob("all_data_0_*.json"))


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content["user_data"])
    path.write_text(json.dumps(content))


def test_writers_are_sorted_and_joined_by_id_whatever_the_files(folder):
    population = datasets.load(datasets.Femnist(), folder)
    assert population.train.sizes.tolist() == [1, 2, 3]  # f03, f11, f20
    assert population.train.examples.y.tolist() == [61, 5, 6, 1, 2, 3]
    assert population.test.examples.y.tolist() == [8, 7, 9, 10]
    assert population.feature_shape == (1, 28, 28)
    assert population.num_classes == 62


def test_the_number_of_writers_is_said(folder, caplog):
    with caplog.at_level("INFO"):
        datasets.load(datasets.Femnist(), folder)
    assert "6 training and 4 test examples of 3 writers (the paper has 196)" in caplog.text


def test_images_are_neither_rounded_nor_transposed(folder):
    arrays = sources.open_arrays("femnist", folder)
    assert np.array_equal(arrays.train.x[0, 0], leaf_images("f03", 1)[0])


def test_the_packed_form_equals_the_json_files(folder):
    decoded = packed.checked("femnist", leaf.read(folder), folder)
    sources.open_arrays("femnist", folder)
    for first, second in zip(decoded, packed.verify("femnist", folder), strict=True):
        assert all(map(np.array_equal, first, second))


def test_the_first_writers_by_id_are_taken(folder):
    population = datasets.load(datasets.Femnist(num_clients=2), folder)
    assert population.train.examples.y.tolist() == [61, 5, 6]
    assert population.test.examples.y.tolist() == [8, 7]


def test_more_writers_than_there_are_is_an_error(folder):
    with pytest.raises(DataError, match=r"there are 3 writers .* asked for 4"):
        datasets.load(datasets.Femnist(num_clients=4), folder)


@pytest.mark.parametrize("inside", ["", "data", "femnist", "femnist/data"])
def test_leafs_folder_is_found(tmp_path, inside):
    write_leaf(tmp_path / inside, "train", TRAIN)
    assert leaf.find(tmp_path) == tmp_path / inside


def test_a_writer_without_test_samples_is_named(folder):
    shard(folder, "test").unlink()
    with pytest.raises(DataError, match=r"writer f11 is in train and not in test .*both folders"):
        datasets.load(datasets.Femnist(), folder)


def test_a_writer_in_two_files_is_named(folder):
    write_leaf(folder / "femnist", "train", [*TRAIN, {"f03": [1]}])
    with pytest.raises(DataError, match="writer f03 is in another file"):
        datasets.load(datasets.Femnist(), folder)


def test_a_folder_without_files_is_named(tmp_path):
    with pytest.raises(DataError, match="no LEAF files"):
        sources.import_arrays("femnist", tmp_path, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        '{"users": ["f03"], "user_',
        "[1, 2]",
        '{"users": []}',
        '{"user_data": null}',
        '{"user_data": [1]}',
    ],
)
def test_a_damaged_file_is_named(folder, content):
    path = shard(folder, "train")
    path.write_text(content)
    with pytest.raises(DataError, match="not a whole JSON file of LEAF") as error:
        leaf.read(folder)
    assert str(path) in str(error.value)


def test_a_file_without_writers_is_named(folder):
    path = shard(folder, "train")
    path.write_text('{"user_data": {}}')
    with pytest.raises(DataError, match=f"{path} has no writers"):
        leaf.read(folder)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"x": [[0.0] * 783], "y": [1]}, "no images of 28x28"),
        ({"x": [[0.0] * 784], "y": [1, 2]}, "1 images, 2 labels"),
        ({"x": [], "y": []}, "0 images, 0 labels"),
        ({"y": [1]}, "no images of 28x28"),
        ({"x": [[0.0] * 784], "y": 3}, "labels of writer f03 are not a list of whole numbers"),
        ({"x": [[0.0] * 784], "y": [3.7]}, "labels of writer f03 are not a list of whole numbers"),
        ({"x": [[0.0] * 784], "y": [10**30]}, "labels of writer f03 are not a list of whole"),
        ({"x": [[float("nan")] * 784], "y": [1]}, "not multiples of 1/255"),
        ({"x": [[1.5] * 784], "y": [1]}, "not multiples of 1/255"),
        ({"x": [[0.5] * 784], "y": [1]}, "not multiples of 1/255"),
    ],
)
def test_unfit_samples_are_named(folder, user, message):
    rewrite(shard(folder, "train"), lambda users: users.update(f03=user))
    with pytest.raises(DataError, match=message) as error:
        leaf.read(folder)
    assert "writer f03" in str(error.value)


def test_a_label_out_of_range_is_named(folder):
    rewrite(shard(folder, "train"), lambda users: users["f03"].update(y=[62]))
    with pytest.raises(DataError, match="y_train must be from 0 to 61, got 62"):
        datasets.load(datasets.Femnist(), folder)
