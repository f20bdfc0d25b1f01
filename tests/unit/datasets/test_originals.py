import gzip
from pathlib import Path

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import originals, packed, sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import (
    channels_first,
    columns,
    write_archive,
    write_files,
    write_mnist,
)


def assert_are(arrays, expected):
    for side, part in zip(("train", "test"), arrays, strict=True):
        assert np.array_equal(part.x, channels_first(expected[f"x_{side}"]))
        assert np.array_equal(part.y, expected[f"y_{side}"])


@pytest.mark.parametrize("place", ["MNIST/raw", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_from_torchvisions_folder_or_from_files_laid_in(
    tmp_path, small_datasets, place, suffix
):
    write_mnist(tmp_path / place, suffix)
    assert_are(sources.open_arrays("mnist", tmp_path), columns("mnist"))


def test_torchvision_reads_the_same_mnist(tmp_path, small_datasets):
    from fedcome_ray.datasets.torchvision_import import torchvision_datasets

    write_mnist(tmp_path / "MNIST" / "raw")
    theirs = torchvision_datasets().MNIST(tmp_path, train=True)
    ours = sources.open_arrays("mnist", tmp_path)
    assert np.array_equal(theirs.data.numpy(), ours.train.x[:, 0])
    assert np.array_equal(theirs.targets.numpy(), ours.train.y)


def test_cifar_is_read_from_torchvisions_folder(tmp_path, cifar):
    name, files = cifar
    write_files(tmp_path / originals.CIFAR[name].folder, files)
    assert_are(sources.open_arrays(name, tmp_path), columns(name))


def test_cifar_is_read_from_an_archive_laid_in_by_hand(tmp_path, cifar):
    name, files = cifar
    layout = originals.CIFAR[name]
    write_archive(tmp_path / layout.archive, {f"{layout.folder}/{k}": v for k, v in files.items()})
    assert_are(sources.open_arrays(name, tmp_path), columns(name))


def test_an_archive_cannot_write_anywhere(tmp_path, cifar):
    name, files = cifar
    layout = originals.CIFAR[name]
    folder = tmp_path / "data"
    folder.mkdir()
    members = {f"{layout.folder}/{key}": content for key, content in files.items()}
    write_archive(folder / layout.archive, {"../escaped": b"", "/tmp/escaped-too": b"", **members})
    sources.open_arrays(name, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([layout.archive, "packed"])
    assert not Path("/tmp/escaped-too").exists()


def test_a_pickle_with_another_checksum_is_not_opened(tmp_path, cifar):
    name, files = cifar
    folder = tmp_path / originals.CIFAR[name].folder
    write_files(folder, {**files, "data_batch_2": b"cos\nsystem\n(S'exit 1'\ntR."})
    with pytest.raises(DataError, match="wrong checksum of data_batch_2") as error:
        sources.open_arrays(name, tmp_path)
    assert str(folder) in str(error.value)


def test_a_file_missing_in_the_folder_is_named(tmp_path, cifar):
    name, files = cifar
    del files["test_batch"]
    write_files(tmp_path / originals.CIFAR[name].folder, files)
    with pytest.raises(DataError, match="test_batch"):
        sources.open_arrays(name, tmp_path)


def test_a_truncated_archive_is_named(tmp_path, cifar):
    name, files = cifar
    layout = originals.CIFAR[name]
    archive = tmp_path / layout.archive
    write_archive(archive, {f"{layout.folder}/{k}": v for k, v in files.items()})
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(DataError, match=f"{layout.archive} is damaged .* get it again"):
        sources.open_arrays(name, tmp_path)


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
def test_a_damaged_mnist_file_is_named(tmp_path, content, message):
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        originals.read_idx(path)
    assert str(path) in str(error.value)


def test_a_truncated_mnist_archive_is_named(tmp_path):
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(1000))[:-8])
    with pytest.raises(DataError, match="is damaged"):
        originals.read_idx(path)


def test_other_images_of_the_right_size_are_refused(tmp_path, small_datasets, monkeypatch):
    from fedcome_ray.datasets.published import FACTS

    monkeypatch.setitem(FACTS, "mnist", FACTS["mnist"]._replace(sha256="0" * 64))
    write_mnist(tmp_path)
    with pytest.raises(DataError, match=r"not the published images of mnist .*wrong checksum"):
        sources.open_arrays("mnist", tmp_path)


def test_the_downloads_are_torchvisions(tmp_path):
    files = originals.downloads("mnist", tmp_path)
    assert [file.path.parent for file in files] == [tmp_path / "MNIST" / "raw"] * 4
    assert all(file.urls[0].startswith("https://") for file in files)
    (archive,) = originals.downloads("cifar100", tmp_path)
    assert archive.path == tmp_path / "cifar-100-python.tar.gz"
    assert archive.md5 == "eb9058c3a382ffc7106e4002c42a8d85"


@pytest.mark.real_data
def test_real_mnist_loads_equally_from_its_files_and_packed(real_data, tmp_path):
    (tmp_path / "MNIST").symlink_to(real_data / "MNIST")
    decoded = packed.checked("mnist", originals.read("mnist", tmp_path), tmp_path)
    population = datasets.load(datasets.Mnist(), tmp_path)
    again = packed.verify("mnist", tmp_path)
    for first, second in zip(decoded, again, strict=True):
        assert np.array_equal(first.x, second.x)
        assert np.array_equal(first.y, second.y)
    assert population.train.sizes.tolist() == [600] * 100
    assert abs(population.train.examples.x.mean()) < 1e-3
    assert abs(population.train.examples.x.std() - 1) < 1e-3
