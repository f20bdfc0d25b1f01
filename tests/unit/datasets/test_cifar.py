from pathlib import Path

import pytest

from fedcome_ray.datasets import sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import (
    FILES,
    assert_are,
    columns,
    published,
    write_archive,
    write_files,
)


def test_cifar_is_read_from_torchvisions_folder(tmp_path, cifar) -> None:
    name, files = cifar
    write_files(tmp_path / FILES[name].folder, files)
    assert_are(sources.open_arrays(published(name), tmp_path), columns(name))


def test_cifar_is_read_from_an_archive_laid_in_by_hand(tmp_path, cifar) -> None:
    name, files = cifar
    own = FILES[name]
    write_archive(tmp_path / own.archive, {f"{own.folder}/{k}": v for k, v in files.items()})
    assert_are(sources.open_arrays(published(name), tmp_path), columns(name))


def test_an_archive_cannot_write_anywhere(tmp_path, cifar) -> None:
    name, files = cifar
    own = FILES[name]
    folder = tmp_path / "data"
    folder.mkdir()
    members = {f"{own.folder}/{key}": content for key, content in files.items()}
    write_archive(folder / own.archive, {"../escaped": b"", "/tmp/escaped-too": b"", **members})
    sources.open_arrays(published(name), folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([own.archive, "packed"])
    assert not Path("/tmp/escaped-too").exists()


def test_a_pickle_with_another_checksum_is_not_opened(tmp_path, cifar) -> None:
    name, files = cifar
    folder = tmp_path / FILES[name].folder
    write_files(folder, {**files, "data_batch_2": b"cos\nsystem\n(S'exit 1'\ntR."})
    with pytest.raises(DataError, match="wrong checksum of data_batch_2") as error:
        sources.open_arrays(published(name), tmp_path)
    assert str(folder) in str(error.value)


def test_a_file_missing_in_the_folder_is_named(tmp_path, cifar) -> None:
    name, files = cifar
    del files["test_batch"]
    write_files(tmp_path / FILES[name].folder, files)
    with pytest.raises(DataError, match="test_batch"):
        sources.open_arrays(published(name), tmp_path)


def test_a_truncated_archive_is_named(tmp_path, cifar) -> None:
    name, files = cifar
    own = FILES[name]
    archive = tmp_path / own.archive
    write_archive(archive, {f"{own.folder}/{k}": v for k, v in files.items()})
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(DataError, match=f"{own.archive} is damaged .* get it again"):
        sources.open_arrays(published(name), tmp_path)


def test_the_download_is_torchvisions(tmp_path) -> None:
    (archive,) = published("cifar100").originals.downloads(tmp_path)
    assert archive.path == tmp_path / "cifar-100-python.tar.gz"
    assert archive.md5 == "eb9058c3a382ffc7106e4002c42a8d85"
