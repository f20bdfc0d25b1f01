from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedcome_ray import datasets
from fedcome_ray.datasets import npz_files, packed, sources
from fedcome_ray.errors import DataError
from tests.unit.datasets.files import (
    NUM_TEST,
    NUM_TRAIN,
    assert_are,
    channels_first,
    columns,
    femnist_columns,
    published,
    write_mnist,
)


@pytest.fixture
def packed_mnist(tmp_path, small_datasets) -> Path:
    write_mnist(tmp_path)
    sources.open_arrays(published("mnist"), tmp_path)
    return tmp_path


def write_npz(path, arrays) -> Path:
    np.savez(path, **arrays)
    return path


def test_packed_pixels_are_mapped_bytes_equal_to_the_original(packed_mnist) -> None:
    arrays = packed.load(published("mnist"), packed_mnist)
    assert isinstance(arrays.train.x, np.memmap)
    assert arrays.train.x.dtype == np.uint8
    assert np.array_equal(arrays.train.x[:, 0], columns("mnist")["x_train"])
    assert np.array_equal(arrays.test.y, columns("mnist")["y_test"])


def test_a_damaged_byte_changes_no_number(packed_mnist) -> None:
    path = packed.pack_path(published("mnist"), packed_mnist)
    whole = path.read_bytes()
    refused = 0
    for position in [*range(400), *range(400, len(whole), len(whole) // 100)]:
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        try:
            assert_are(packed.load(published("mnist"), packed_mnist), columns("mnist"))
        except DataError as error:
            assert f"delete {path}" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 100


def test_the_packed_file_is_enough(packed_mnist) -> None:
    for path in packed_mnist.glob("*ubyte"):
        path.unlink()
    population = datasets.load(datasets.Mnist(num_clients=10), packed_mnist)
    wanted = channels_first(columns("mnist")["x_train"])
    assert np.array_equal(population.train.examples.x, wanted)
    assert np.array_equal(population.train.examples.scale, published("mnist").scale)


def test_partitions_of_one_dataset_share_their_examples(packed_mnist) -> None:
    first, second = (
        datasets.load(datasets.Mnist(num_clients=clients), packed_mnist) for clients in (5, 10)
    )
    assert first.train.examples.x is second.train.examples.x
    assert not first.train.examples.x.flags.writeable


def test_the_packed_file_is_not_written_again(packed_mnist) -> None:
    path = packed.pack_path(published("mnist"), packed_mnist)
    before = path.stat()
    sources.open_arrays(published("mnist"), packed_mnist)
    assert path.stat().st_ino == before.st_ino


def test_pixels_are_normalised_per_channel() -> None:
    facts = published("cifar10")
    pixels = np.arange(2 * 3 * 32 * 32, dtype=np.uint32).reshape(2, 3, 32, 32).astype(np.uint8)
    factor, shift = facts.scale
    x = factor * pixels + shift
    assert x.dtype == np.float32
    for channel in range(3):
        wanted = (pixels[:, channel] / 255 - facts.mean[channel]) / facts.std[channel]
        assert np.allclose(x[:, channel], wanted, atol=1e-6)


@pytest.mark.parametrize("kept", [0, 100, 0.5, -1])
def test_a_truncated_packed_file_is_noticed(packed_mnist, kept) -> None:
    path = packed.pack_path(published("mnist"), packed_mnist)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(DataError, match=r"mnist-v1.npz is damaged[\s\S]*delete"):
        datasets.load(datasets.Mnist(num_clients=10), packed_mnist)


def test_verify_notices_a_single_changed_pixel(packed_mnist) -> None:
    path = packed.pack_path(published("mnist"), packed_mnist)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(DataError, match="wrong checksum of x_train"):
        packed.verify(published("mnist"), packed_mnist)


def test_a_folder_that_cannot_be_written_is_used_without_a_packed_file(
    tmp_path, small_datasets, caplog
) -> None:
    write_mnist(tmp_path)
    (tmp_path / "packed").write_text("in the way of the folder")
    arrays = sources.open_arrays(published("mnist"), tmp_path)
    assert np.array_equal(arrays.train.x[:, 0], columns("mnist")["x_train"])
    assert "decoded at every start" in caplog.text


def test_readers_and_writers_at_once_always_find_a_whole_file(tmp_path, small_datasets) -> None:
    arrays = packed.checked(published("mnist"), columns("mnist"), tmp_path)
    path = packed.save(published("mnist"), arrays, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        writes = [pool.submit(packed.save, published("mnist"), arrays, tmp_path) for _ in range(60)]
        while not all(write.done() for write in writes):
            packed.verify(published("mnist"), tmp_path)
    assert {write.result() for write in writes} == {path}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
@pytest.mark.parametrize("layout", ["as published", "channels first", "flat"])
def test_arrays_are_imported_in_any_usual_layout(tmp_path, small_datasets, name, layout) -> None:
    arrays = columns(name)
    for side in ("x_train", "x_test"):
        if layout != "as published":
            arrays[side] = channels_first(arrays[side])
        if layout == "flat":
            arrays[side] = arrays[side].reshape(len(arrays[side]), -1)
    sources.import_arrays(published(name), write_npz(tmp_path / "mine.npz", arrays), tmp_path)
    assert np.array_equal(
        packed.load(published(name), tmp_path).train.x, channels_first(columns(name)["x_train"])
    )


def test_a_packed_file_can_be_imported_elsewhere(packed_mnist, tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    sources.import_arrays(
        published("mnist"), packed.pack_path(published("mnist"), packed_mnist), elsewhere
    )
    assert np.array_equal(
        packed.load(published("mnist"), elsewhere).train.x,
        packed.load(published("mnist"), packed_mnist).train.x,
    )


def test_imported_writers_are_sorted_by_id(tmp_path) -> None:
    arrays = {**femnist_columns(3), "writers": np.array(["f20", "f03", "f11"])}
    sources.import_arrays(published("femnist"), write_npz(tmp_path / "mine.npz", arrays), tmp_path)
    side = packed.load(published("femnist"), tmp_path).train
    assert np.array_equal(side.clients, np.sort(side.clients))
    for place, client in enumerate([1, 2, 0]):  # f03, f11, f20
        wanted = arrays["x_train"][arrays["client_train"] == client]
        assert np.array_equal(side.x[side.clients == place][:, 0], wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((NUM_TRAIN, 28, 28), np.float32)}, "x_train must be bytes"),
        ({"x_train": np.zeros((NUM_TRAIN, 27, 28), np.uint8)}, "images of x_train must be 28x28"),
        ({"y_train": np.arange(NUM_TRAIN - 1) % 10}, "equally long .* x_train 40, y_train 39"),
        ({"y_test": np.full(NUM_TEST, 10)}, "y_test must be from 0 to 9, got 10 at position 0"),
        ({"y_test": np.full(NUM_TEST, -1)}, "y_test must be from 0 to 9, got -1"),
        ({"y_test": np.zeros(NUM_TEST)}, "y_test must be one row of integers, got float64"),
        (
            {"x_train": np.zeros((30, 28, 28), np.uint8), "y_train": np.arange(30) % 10},
            "40 training and 20 test examples, got 30 and 20",
        ),
    ],
)
def test_arrays_that_are_not_the_dataset_are_refused(
    tmp_path, small_datasets, changes, message
) -> None:
    path = write_npz(tmp_path / "mine.npz", {**columns("mnist"), **changes})
    with pytest.raises(DataError, match=message) as error:
        sources.import_arrays(published("mnist"), path, tmp_path)
    assert str(path) in str(error.value)
    assert not packed.pack_path(published("mnist"), tmp_path).exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client_train": np.repeat([0, 1, 3], [10, 10, 20])}, "no examples of client 2"),
        ({"client_test": np.zeros(NUM_TEST, int)}, "client_test has no examples of client 1"),
        ({"writers": np.array(["a", "b", "a"])}, "writers must be a list of different ids"),
        ({"writers": np.array("a")}, "writers must be a list of different ids"),
        ({"writers": np.array(["a", "b"])}, "client_train must be from 0 to 1, got 2"),
    ],
)
def test_writers_without_examples_are_refused(tmp_path, changes, message) -> None:
    path = write_npz(tmp_path / "mine.npz", {**femnist_columns(4), **changes})
    with pytest.raises(DataError, match=message):
        sources.import_arrays(published("femnist"), path, tmp_path)


def test_missing_arrays_are_named(tmp_path) -> None:
    path = write_npz(tmp_path / "mine.npz", columns("femnist"))
    with pytest.raises(DataError, match="lacks the arrays client_test, client_train"):
        sources.import_arrays(published("femnist"), path, tmp_path)


def test_pickled_arrays_are_never_opened(tmp_path) -> None:
    arrays = {**columns("mnist"), "y_test": np.array([{"label": 1}], dtype=object)}
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="plain arrays"):
        npz_files.read(path, arrays)


def test_a_full_or_missing_disk_is_reported(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        npz_files.write(tmp_path / "file" / "pack.npz", {"x": np.zeros(3)})


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["cifar10", "femnist"])
def test_real_arrays_are_imported_and_load_equally(real_data, tmp_path, name) -> None:
    origin = real_data / f"{name}.npz"
    sources.import_arrays(published(name), origin, tmp_path)
    side = packed.verify(published(name), tmp_path).test
    with np.load(origin) as file:
        assert side.y.sum() == file["y_test"].sum(dtype=np.int64)
        if name == "cifar10":
            assert np.array_equal(side.x, channels_first(file["x_test"]))
    population = datasets.load(datasets.parse(name), tmp_path)
    assert population.num_clients == {"cifar10": 100, "femnist": 196}[name]
