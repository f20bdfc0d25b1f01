"""Small files in the formats of the published datasets."""

import gzip
import io
import json
import pickle
import struct
import tarfile
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets import REGISTRY, cifar10, cifar100, images, mnist, with_files
from fedcome_ray.datasets.published import Published

NUM_TRAIN, NUM_TEST = 40, 20
FILES = {"cifar10": cifar10.FILES, "cifar100": cifar100.FILES}
LEAF_TRAIN = [{"f20": [1, 2, 3], "f03": [61]}, {"f11": [5, 6]}]
LEAF_TEST = [{"f11": [7]}, {"f03": [8], "f20": [9, 10]}]


def published(name) -> Published:
    return with_files()[name]


def make_small(monkeypatch, name, sha256=None) -> None:
    real = REGISTRY[name]
    published = replace(real.published, num_train=NUM_TRAIN, num_test=NUM_TEST, sha256=sha256)
    monkeypatch.setitem(REGISTRY, name, images.dataset(real.config, published, real.label))


def columns(name) -> dict[str, NDArray[np.uint8]]:
    """Random images, height, width, channel, with all the labels in turn."""
    channels, height, width = published(name).feature_shape
    shape = (height, width, channels) if channels > 1 else (height, width)
    rng = np.random.default_rng(0)
    arrays = {}
    for side, count in (("train", NUM_TRAIN), ("test", NUM_TEST)):
        arrays[f"x_{side}"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"y_{side}"] = (np.arange(count) % published(name).num_classes).astype(np.uint8)
    return arrays


def femnist_columns(num_writers=4) -> dict[str, NDArray[np.integer]]:
    writers = {
        "client_train": np.arange(NUM_TRAIN) % num_writers,
        "client_test": np.arange(NUM_TEST) % num_writers,
    }
    return {**columns("femnist"), **writers}


def channels_first(x) -> NDArray[np.uint8]:
    return x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)


def write_mnist(folder, suffix="") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for key, array in columns("mnist").items():
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
        content = header + array.tobytes()
        path = folder / f"{mnist.FILES[key]}{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)


def cifar_files(name) -> dict[str, bytes]:
    """Pickled files, the training images in two of them."""
    arrays, labels = columns(name), FILES[name].labels
    parts = {
        "data_batch_1": ("train", slice(25)),
        "data_batch_2": ("train", slice(25, None)),
        "test_batch": ("test", slice(None)),
    }
    return {
        file: pickle.dumps(
            {
                "data": channels_first(arrays[f"x_{side}"][part]).reshape(-1, 3072),
                labels: arrays[f"y_{side}"][part].tolist(),
            }
        )
        for file, (side, part) in parts.items()
    }


def write_files(folder, files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_archive(path, files) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def leaf_images(writer, count) -> NDArray[np.uint8]:
    rng = np.random.default_rng([ord(letter) for letter in writer])
    return rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)


def write_leaf(folder, side, shards) -> None:
    """A JSON file for each shard `{writer: labels}`, named as LEAF names it."""
    (folder / side).mkdir(parents=True, exist_ok=True)
    for number, shard in enumerate(shards):
        users = {
            writer: {
                "x": (leaf_images(writer, len(labels)).reshape(-1, 784) / 255).tolist(),
                "y": labels,
            }
            for writer, labels in shard.items()
        }
        path = folder / side / f"all_data_{number}_niid_05_keep_0_{side}_9.json"
        sizes = [len(labels) for labels in shard.values()]
        path.write_text(
            json.dumps({"users": list(users), "num_samples": sizes, "user_data": users})
        )


def assert_are(arrays, expected) -> None:
    for side, part in zip(("train", "test"), arrays, strict=True):
        assert np.array_equal(part.x, channels_first(expected[f"x_{side}"]))
        assert np.array_equal(part.y, expected[f"y_{side}"])
