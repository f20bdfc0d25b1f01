import gzip

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import mnist, packed, sources
from fedcome_ray.datasets.torchvision_import import torchvision_datasets
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import assert_are, columns, make_small, published, write_mnist


@pytest.mark.parametrize("place", ["MNIST/raw", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_from_torchvisions_folder_or_from_files_laid_in(
    tmp_path, small_datasets, place, suffix
) -> None:
    write_mnist(tmp_path / place, suffix)
    assert_are(sources.open_arrays(published("mnist"), tmp_path), columns("mnist"))


def test_torchvision_reads_the_same_mnist(tmp_path, small_datasets) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    theirs = torchvision_datasets().MNIST(tmp_path, train=True)
    ours = sources.open_arrays(published("mnist"), tmp_path)
    assert np.array_equal(theirs.data.numpy(), ours.train.x[:, 0])
    assert np.array_equal(theirs.targets.numpy(), ours.train.y)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x00\x08\x01\x00\x00\x00\x05abc", "11 bytes instead of 13"),
        (b"\x00\x00\x08\x03\x00\x00", "not a file of labels or images"),
        (b"<html>not found</html>", "not a file of labels or images"),
        (b"", "not a file of labels or images"),
        (b"\x00\x00\x08\xff" + bytes(4 * 255), "not a file of labels or images"),
        (b"\x00\x00\x08\x03" + b"\xff\xff\xff\xff" * 3, "16 bytes instead of"),
    ],
)
def test_a_damaged_mnist_file_is_named(tmp_path, content, message) -> None:
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        mnist.read_idx(path)
    assert str(path) in str(error.value)


def test_a_truncated_mnist_archive_is_named(tmp_path) -> None:
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(1000))[:-8])
    with pytest.raises(DataError, match="is damaged"):
        mnist.read_idx(path)


def test_other_images_of_the_right_size_are_refused(tmp_path, monkeypatch) -> None:
    make_small(monkeypatch, "mnist", sha256="0" * 64)
    write_mnist(tmp_path)
    with pytest.raises(DataError, match=r"not the published images of mnist .*wrong checksum"):
        sources.open_arrays(published("mnist"), tmp_path)


def test_the_downloads_are_torchvisions(tmp_path) -> None:
    files = mnist.downloads(tmp_path)
    assert [file.path.parent for file in files] == [tmp_path / "MNIST" / "raw"] * 4
    assert all(file.urls[0].startswith("https://") for file in files)


@pytest.mark.real_data
def test_real_mnist_loads_equally_from_its_files_and_packed(real_data, tmp_path) -> None:
    (tmp_path / "MNIST").symlink_to(real_data / "MNIST")
    decoded = packed.checked(published("mnist"), mnist.read(tmp_path), tmp_path)
    population = datasets.load(datasets.Mnist(), tmp_path)
    again = packed.verify(published("mnist"), tmp_path)
    for first, second in zip(decoded, again, strict=True):
        assert np.array_equal(first.x, second.x)
        assert np.array_equal(first.y, second.y)
    assert population.train.sizes.tolist() == [600] * 100
    images = population.train.examples.x
    assert images.dtype == np.uint8
    features = population.train.examples.features
    assert abs(features.mean()) < 1e-3
    assert abs(features.std() - 1) < 1e-3
