import time

import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import published


def test_the_data_folder_is_the_argument_or_the_environments_or_the_cache(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("FEDCOME_DATA_DIR", str(tmp_path / "environment"))
    assert sources.data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert sources.data_folder(None) == tmp_path / "environment"
    monkeypatch.delenv("FEDCOME_DATA_DIR")
    assert "fedcome_ray" in str(sources.data_folder(None))


def test_a_data_folder_that_cannot_be_read_is_named(tmp_path) -> None:
    folder = tmp_path / "file"
    folder.touch()
    with pytest.raises(DataError, match=r"cannot read the data folder .*file: Not a directory"):
        datasets.load(datasets.Mnist(), folder)


@pytest.mark.real_data
def test_a_packed_mnist_is_loaded_in_less_than_two_seconds(real_data, tmp_path) -> None:
    (tmp_path / "MNIST").symlink_to(real_data / "MNIST")
    sources.open_arrays(published("mnist"), tmp_path)
    start = time.perf_counter()
    datasets.load(datasets.Mnist(), tmp_path)
    assert time.perf_counter() - start < 2
