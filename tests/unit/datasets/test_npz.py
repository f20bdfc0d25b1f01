import os
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import partitions
from fedcome_ray.errors import ConfigError, DataError
from fedcome_ray.experiments.trial import parse_trial


def arrays(**changes) -> dict[str, Any]:
    """Three clients with 4, 1 and 2 training examples, not in order, of 5 features."""
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.normal(size=(7, 5)),
        "y_train": np.array([0, 1, 2, 0, 1, 2, 3]),
        "client_train": np.array([2, 0, 0, 1, 0, 2, 0]),
        "x_test": rng.normal(size=(3, 5)),
        "y_test": np.array([3, 0, 1]),
        "client_test": np.array([1, 2, 0]),
        **changes,
    }


@pytest.fixture
def write(tmp_path) -> Callable[..., datasets.Npz]:
    def write_npz(**changes) -> datasets.Npz:
        path = tmp_path / "mine.npz"
        np.savez(path, **{k: v for k, v in arrays(**changes).items() if v is not None})
        return datasets.Npz(dataset=f"npz:{path}")

    return write_npz


def own_labels(split, client) -> list[int]:
    start, end = split.offsets[client : client + 2]
    return split.examples.y[split.order[start:end]].tolist()


def test_examples_go_to_the_clients_beside_them(write) -> None:
    population = datasets.load(write())
    assert population.num_clients == 3
    assert population.num_classes == 4
    assert [own_labels(population.train, client) for client in range(3)] == [
        [1, 2, 1, 3],
        [0],
        [0, 2],
    ]
    assert [own_labels(population.test, client) for client in range(3)] == [[1], [3], [0]]


def test_features_are_taken_as_they_are(write) -> None:
    x = datasets.load(write()).train.examples.x
    assert x.dtype == np.float32
    assert np.array_equal(x, arrays()["x_train"].astype(np.float32))


def test_bytes_are_pixels(write) -> None:
    pixels = np.arange(7 * 4, dtype=np.uint8).reshape(7, 1, 2, 2)
    config = write(x_train=pixels, x_test=pixels[:3])
    population = datasets.load(config)
    assert population.feature_shape == (1, 2, 2)
    assert datasets.describe(config).example_bytes == 4
    assert population.train.examples.x.dtype == np.uint8  # a quarter of the memory
    assert np.allclose(population.train.examples.features, pixels / 255)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64])
def test_other_whole_numbers_are_tokens_and_stay_whole(write, dtype) -> None:
    tokens = np.arange(35).reshape(7, 5).astype(dtype)
    config = write(x_train=tokens, x_test=tokens[:3])
    x = datasets.load(config).train.examples.x
    assert x.dtype == datasets.describe(config).feature_dtype == np.int64
    assert np.array_equal(x, tokens)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
def test_beside_what_is_not_whole_or_too_large_numbers_are_numbers(write, dtype) -> None:
    config = write(x_train=np.arange(35).reshape(7, 5), x_test=np.ones((3, 5), dtype))
    x = datasets.load(config).train.examples.x
    assert x.dtype == datasets.describe(config).feature_dtype == np.float32
    assert np.array_equal(x, np.arange(35).reshape(7, 5))


def test_it_is_described_without_reading_its_examples(write) -> None:
    description = datasets.describe(write())
    assert description == datasets.Description((5,), 4, num_train=7, num_test=3, num_clients=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"client_train": np.array([3, 0, 0, 1, 0, 3, 0])},
            "no examples of client 2 .*without gaps",
        ),
        ({"client_test": np.array([1, 1, 0])}, "client_test has no examples of client 2"),
        ({"client_test": np.array([1, 2, 3])}, "client_train has no examples of client 3"),
        ({"client_train": np.array([-1, 0, 0, 1, 0, 2, 0])}, "client_train must be from 0"),
        ({"client_train": np.full(7, 10**12)}, "client_train must be from 0 to 6"),
        ({"client_train": np.array(list("abcabca"))}, "client_train must be one row of integers"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2, -1])}, "y_train must be from 0 .* got -1 at .* 6"),
        ({"y_test": np.array([4, 0, 1])}, "y_test must be from 0 to 3, got 4 at position 0"),
        ({"y_train": np.arange(7.0)}, "y_train must be one row of integers, got float64"),
        ({"y_train": np.arange(6)}, "equally long"),
        ({"x_train": np.zeros((6, 5))}, "equally long .* x_train 6, y_train 7"),
        ({"x_test": np.zeros((3, 4))}, r"one shape, got \(5,\) and \(4,\)"),
        ({"x_train": np.zeros(7), "x_test": np.zeros(3)}, "x_train must be real numbers of shape"),
        ({"x_train": np.full((7, 5), "a")}, "x_train must be real numbers"),
        ({"x_train": np.full((7, 5), np.nan)}, "x_train must be finite .* example 0 is not"),
        ({"x_test": np.full((3, 5), 1e300)}, "x_test must be finite float32 numbers"),
        (
            {"x_train": np.zeros((7, 5), np.uint8)},
            "both x_train and x_test must be bytes or neither",
        ),
        ({"x_train": np.zeros((7, 5), bool)}, "x_train must be real numbers"),
        ({"x_train": np.zeros((7, 5), complex)}, "x_train must be real numbers"),
        ({"client_test": None}, "lacks the arrays client_test; it has client_train"),
        (
            {"x_test": np.zeros((0, 5)), "y_test": np.arange(0), "client_test": np.arange(0)},
            "equally long and not empty",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_unfit_arrays_are_named(write, changes, message) -> None:
    config = write(**changes)
    with pytest.raises(DataError, match=message) as error:
        datasets.load(config)
    assert str(config.path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 and then no more"])
def test_a_file_that_is_no_npz_is_named(tmp_path, content) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    for use in (datasets.load, datasets.describe, datasets.check_available):
        with pytest.raises(DataError, match=r"mine\.npz is damaged or not an \.npz file"):
            use(datasets.Npz(dataset=f"npz:{path}"))


def test_a_file_that_lacks_an_array_is_not_available(write) -> None:
    with pytest.raises(DataError, match="lacks the arrays x_test"):
        datasets.check_available(write(x_test=None))


def test_wrong_bytes_anywhere_are_damage(write) -> None:
    config = write()
    whole = config.path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(len(content), size=4):
            content[place] = rng.integers(256)
        config.path.write_bytes(content)
        with suppress(DataError):  # most of it; some bytes mean nothing
            datasets.load(config)


def zipped(config: datasets.Npz, name: str, content: bytes) -> None:
    """Put other bytes in the place of one array, as a whole member of the archive."""
    with zipfile.ZipFile(config.path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members[f"{name}.npy"] = content
    with zipfile.ZipFile(config.path, "w") as archive:
        for member, own in members.items():
            archive.writestr(member, own)


def header(text: str) -> bytes:
    """A header of NumPy's format with whatever text, and eight numbers behind it."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(64)


@pytest.mark.parametrize("name", ["x_train", "x_test", "y_test", "client_test"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a header",
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 5)}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (-8, -1)}"),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 400 + ",)}"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (8,)}"),
        header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (8,)}"),
        header("(" * 5000),
        header("-" * 9000 + "1"),
    ],
)
def test_a_header_that_is_none_is_found_before_a_trial_runs(write, name, content) -> None:
    config = write()
    zipped(config, name, content)
    for use in (datasets.describe, datasets.check_available, datasets.load):
        with pytest.raises(DataError, match=r"mine\.npz is damaged or not an \.npz file"):
            use(config)


@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "pipe"), ("/dev/zero", "device"), (tmp_path, "folder")):
        config = parse_trial({"data": {"dataset": f"npz:{path}"}}).data
        for use in (datasets.describe, datasets.check_available, datasets.load):
            with pytest.raises(DataError, match=f"{path}: it is a .*{kind}.*, not a file"):
                use(config)


def test_the_home_of_nobody_is_a_folder_that_is_not_there() -> None:
    config = datasets.Npz(dataset="npz:~nobody-of-this-name/mine.npz")
    with pytest.raises(DataError, match=r"cannot read ~nobody-of-this-name/mine\.npz: No"):
        datasets.check_available(config)


def test_a_missing_file_is_named(tmp_path) -> None:
    config = datasets.Npz(dataset=f"npz:{tmp_path / 'none.npz'}")
    with pytest.raises(DataError, match=r"cannot read .*none\.npz: No such file"):
        datasets.check_available(config)


def test_other_contents_are_another_trial(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    keys = []
    for content in (b"first", b"second"):
        path.write_bytes(content)
        keys.append(parse_trial({"data": {"dataset": f"npz:{path}"}}).key)
    assert keys[0] != keys[1]


@pytest.fixture
def pool(tmp_path) -> str:
    """The name of a dataset without clients: 60 training and 30 test examples of 3 classes."""
    rng = np.random.default_rng(1)
    columns = {
        f"{key}_{side}": rng.normal(size=(count, 2)) if key == "x" else np.arange(count) % 3
        for side, count in (("train", 60), ("test", 30))
        for key in ("x", "y")
    }
    np.savez(tmp_path / "pool.npz", **columns)
    return f"npz:{tmp_path / 'pool.npz'}"


@pytest.mark.parametrize(
    "partition",
    [
        {"name": "iid"},
        {"name": "dirichlet", "alpha": 2.0},
        {"name": "shards", "per_client": 3},
        {"classes": 2, "name": "classes_per_client"},
    ],
)
@pytest.mark.parametrize("test_split", ["natural", "label_matched"])
def test_a_file_without_clients_takes_any_partition(pool, partition, test_split) -> None:
    settings = {"dataset": pool, "num_clients": 5, "partition": partition, "seed": 7}
    config = parse_trial({"data": settings | {"test_split": test_split}}).data
    population = datasets.load(config)
    dealt = partitions.partition(
        partitions.REGISTRY.parse(partition), np.arange(60) % 3, num_clients=5, seed=7
    )
    assert np.array_equal(population.train.order, np.concatenate(dealt))
    assert population.train.sizes.tolist() == [len(own) for own in dealt]
    assert sorted(population.test.order.tolist()) == list(range(30))
    assert datasets.describe(config) == datasets.Description((2,), 3, 60, 30, 5)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"num_clients": 2}, "num_clients"),
        ({"partition": {"name": "iid"}}, "partition"),
        ({"partition": {"alpha": 0.1}}, "partition"),
        ({"test_split": "label_matched"}, "test_split"),
        ({"seed": 2}, "seed"),
    ],
)
def test_a_file_with_clients_takes_no_partition(write, given, field) -> None:
    config = datasets.parse({"dataset": write().dataset, **given})
    for use in (datasets.describe, datasets.check_available, datasets.load):
        with pytest.raises(DataError, match=rf"^data\.{field}: .*mine\.npz says itself whose"):
            use(config)


def test_superclasses_are_not_looked_for_in_a_users_file(pool) -> None:
    with pytest.raises(ConfigError, match=r"data\.partition: .* needs superclasses"):
        parse_trial({"data": {"dataset": pool, "partition": {"name": "ring2"}}})


def test_how_a_pool_is_shared_out_is_part_of_the_key_and_written_down(pool) -> None:
    plain, usual, other = (
        parse_trial({"data": {"dataset": pool, **given}})
        for given in ({}, {"seed": 1, "partition": {"name": "dirichlet"}}, {"num_clients": 5})
    )
    assert plain.key == usual.key != other.key
    # A trial of a file with clients was known by these before there were others.
    assert plain.model_dump(mode="json")["data"].keys() == {"dataset", "validation", "sha256"}
    assert parse_trial(other.model_dump(mode="json")) == other
