import json
import os
from contextlib import suppress
from pathlib import Path

import datasets as hugging_face
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fedcome_ray.datasets.own import arrow_files
from fedcome_ray.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]

hugging_face.disable_progress_bars()


def make(**columns) -> hugging_face.Dataset:
    return hugging_face.Dataset.from_dict(columns)


@pytest.fixture
def numbers() -> hugging_face.Dataset:
    return make(x=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5], y=LABELS, who=list("aabbcc"))


def test_a_saved_dataset_is_read_in_its_order(numbers, tmp_path) -> None:
    numbers.save_to_disk(tmp_path / "saved", num_shards=3)
    tables = arrow_files.read(tmp_path / "saved")
    assert list(tables) == [arrow_files.ALL]
    assert tables[arrow_files.ALL].numbers("x").tolist() == numbers["x"][:]
    assert tables[arrow_files.ALL].identities("who").tolist() == numbers["who"][:]


def test_saved_splits_are_told_apart(numbers, tmp_path) -> None:
    splits = numbers.train_test_split(test_size=2, seed=0)
    splits.save_to_disk(tmp_path / "saved")
    tables = arrow_files.read(tmp_path / "saved")
    assert list(tables) == ["train", "test"]
    for name, table in tables.items():
        assert table.numbers("x").tolist() == splits[name]["x"][:]


def test_what_was_chosen_of_a_dataset_is_what_is_read(numbers, tmp_path) -> None:
    chosen = numbers.shuffle(seed=1).select([4, 0, 2])  # an index that saving resolves
    chosen.save_to_disk(tmp_path / "saved")
    (table,) = arrow_files.read(tmp_path / "saved").values()
    assert table.numbers("x").tolist() == chosen["x"][:]


def test_parquet_is_read_as_a_file_and_as_a_folder(numbers, tmp_path) -> None:
    numbers.to_parquet(tmp_path / "all.parquet")
    (table,) = arrow_files.read(tmp_path / "all.parquet").values()
    assert table.identities("y").tolist() == LABELS
    (tmp_path / "hub").mkdir()
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        numbers.to_parquet(tmp_path / "hub" / f"{name}.parquet")
    tables = arrow_files.read(tmp_path / "hub")
    assert {name: table.num_rows for name, table in tables.items()} == {"train": 12, "test": 6}


@pytest.mark.parametrize("is_grey", [False, True])
def test_pictures_are_decoded_with_channels_first(tmp_path, is_grey) -> None:
    pixels = PIXELS[..., 0] if is_grey else PIXELS
    features = hugging_face.Features(
        picture=hugging_face.Image(), y=hugging_face.ClassLabel(names=["cat", "dog", "owl"])
    )
    dataset = hugging_face.Dataset.from_dict(
        {"picture": [Image.fromarray(one) for one in pixels], "y": LABELS}, features=features
    )
    dataset.save_to_disk(tmp_path / "saved")
    (table,) = arrow_files.read(tmp_path / "saved").values()
    read = table.array("picture")
    assert read.dtype == np.uint8
    assert np.array_equal(read, pixels[:, None] if is_grey else np.moveaxis(pixels, -1, 1))
    assert arrow_files.class_names(table, "y") == ["cat", "dog", "owl"]
    assert arrow_files.class_names(table, "picture") is None


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int32"])
def test_arrays_keep_their_shape(tmp_path, dtype) -> None:
    values = PIXELS.astype(dtype)
    features = hugging_face.Features(x=hugging_face.Array3D((5, 4, 3), dtype))
    hugging_face.Dataset.from_dict({"x": list(values)}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    (table,) = arrow_files.read(tmp_path / "saved").values()
    read = table.array("x")
    assert read.dtype == (np.uint8 if dtype == "uint8" else np.float32)
    assert np.array_equal(read, PIXELS)


def test_a_list_of_whole_numbers_is_tokens(tmp_path) -> None:
    make(ids=[[1, 2, 3], [4, 5, 2**40]]).save_to_disk(tmp_path / "saved")
    (table,) = arrow_files.read(tmp_path / "saved").values()
    assert table.array("ids").dtype == np.int64
    assert table.array("ids").tolist() == [[1, 2, 3], [4, 5, 2**40]]


def refused(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        arrow_files.read(path)
    assert "\n" not in str(error.value)


def test_damage_is_named_by_its_file(numbers, tmp_path) -> None:
    numbers.save_to_disk(tmp_path / "saved")
    (data,) = (tmp_path / "saved").glob("*.arrow")
    data.write_bytes(data.read_bytes()[:200])
    refused(tmp_path / "saved", "arrow is damaged or no such file")
    data.unlink()
    refused(tmp_path / "saved", r"cannot read .*arrow: No such file")
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": 3}')
    refused(tmp_path / "saved", r"state\.json is not what `save_to_disk` writes")
    (tmp_path / "saved" / "state.json").write_text("[" * 100_000)
    refused(tmp_path / "saved", r"state\.json is not what `save_to_disk` writes")
    refused(tmp_path, "is neither a folder of `save_to_disk`")
    (tmp_path / "not.parquet").write_bytes(b"not parquet, but long enough to be looked at")
    refused(tmp_path / "not.parquet", r"not\.parquet is damaged or no such file")


def test_splits_outside_of_the_folder_are_not_read(numbers, tmp_path) -> None:
    numbers.save_to_disk(tmp_path / "elsewhere")
    (tmp_path / "saved").mkdir()
    splits = {"splits": ["../elsewhere"]}
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps(splits))
    refused(tmp_path / "saved", "cannot read .*saved/elsewhere/state.json: No such file")


def test_files_with_other_columns_are_not_joined(tmp_path) -> None:
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"z": [1.0]}), tmp_path / "b.parquet")
    refused(tmp_path, r"b\.parquet has other columns than a\.parquet")


@pytest.mark.timeout(20)
def test_what_is_no_file_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "it is a pipe or a device")
    refused(Path("/dev/zero"), "it is a pipe or a device")


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_wrong_bytes_anywhere_are_read_or_refused(numbers, tmp_path, kind) -> None:
    if kind == "arrow":
        numbers.save_to_disk(tmp_path / "saved")
        (data,) = (tmp_path / "saved").glob("*.arrow")
    else:
        (tmp_path / "saved").mkdir()
        data = tmp_path / "saved" / "mine.parquet"
        numbers.to_parquet(data)
    whole, rng = data.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        for place in rng.integers(len(content), size=4):
            content[place] = rng.integers(256)
        data.write_bytes(content)
        with suppress(DataError):
            for table in arrow_files.read(tmp_path / "saved").values():
                for name in table.names:
                    with suppress(DataError):
                        table.numbers(name)
                    with suppress(DataError):
                        table.identities(name)
