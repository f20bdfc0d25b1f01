import hashlib
import os
from pathlib import Path

import pytest

from fedcome_ray.datasets.torchvision_import import torchvision_datasets
from tests.unit.datasets.files import LEAF_TEST, LEAF_TRAIN, cifar_files, make_small, write_leaf


@pytest.fixture
def small_datasets(monkeypatch) -> None:
    """The published datasets are a few images each, so that no test needs the real ones."""
    for name in ("mnist", "cifar10", "cifar100"):
        make_small(monkeypatch, name)


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request, monkeypatch, small_datasets) -> tuple[str, dict[str, bytes]]:
    """The name and the small files of a CIFAR dataset, whose checksums torchvision is told."""
    files = cifar_files(request.param)
    sums = [[name, hashlib.md5(content).hexdigest()] for name, content in files.items()]
    published = getattr(torchvision_datasets(), request.param.upper())
    monkeypatch.setattr(published, "train_list", sums[:-1])
    monkeypatch.setattr(published, "test_list", sums[-1:])
    return request.param, files


@pytest.fixture
def leaf_folder(tmp_path) -> Path:
    write_leaf(tmp_path / "femnist", "train", LEAF_TRAIN)
    write_leaf(tmp_path / "femnist", "test", LEAF_TEST)
    return tmp_path


@pytest.fixture
def real_data() -> Path:
    """A folder with MNIST/raw, cifar10.npz and femnist.npz, for tests marked `real_data`."""
    folder = os.environ.get("FEDCOME_TEST_DATA")
    if not folder:
        pytest.skip("FEDCOME_TEST_DATA names no folder of real datasets")
    return Path(folder)
