"""The examples that all peers learn from, one file for each workload.

MNIST where its packed file is in the data folder (FEDCOME_DATA_DIR), else invented images of its
shape: each class has a few templates, of which an example is one under noise, within a margin as
MNIST's digits have it. Clients of the first workload have about two classes each, so a peer that
averages wrongly does not get as far as others.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcome_ray import models
from fedcome_ray.datasets import mnist, packed, sources
from fedcome_ray.datasets.partitions import shards
from tests.benchmarks.peers import ours
from tests.benchmarks.peers.task import CLASSES, FEATURE_SHAPE, Workload

TEMPLATES = 4  # of a class
MARGIN = 3  # pixels: 62 % of an image are within it; of MNIST's, 56 % differ in a batch of 50
NOISE = 1.0  # its standard deviation; that of templates is 1
REDRAWN = 0.1  # share of the labels that are drawn anew, which nobody can learn

Side = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images and their labels."""


def write(workload: Workload, folder: Path) -> tuple[Path, str]:
    """The file with a workload's examples, which our `npz:` datasets are too, and their source."""
    num_train = workload.num_clients * workload.examples_per_client
    if packed.pack_path(mnist.PUBLISHED, data := sources.data_folder(None)).is_file():
        source, (train, test) = "MNIST", packed.load(mnist.PUBLISHED, data)
        (x, y), (x_test, y_test) = (train.x, train.y), (test.x, test.y)
    else:
        source, (x, y) = "invented images", invent(num_train + workload.num_test)
        x_test, y_test = x[num_train:], y[num_train:]
    dealt = shards.deal(
        shards.SortedShards(per_client=workload.pieces), y[:num_train], workload.num_clients, seed=0
    )
    # In no order: not every peer shuffles, and a client's pieces would come one after the other.
    rng = np.random.default_rng(0)
    dealt = [rng.permutation(own) for own in dealt]
    model = models.build(ours.model_of(workload), FEATURE_SHAPE, CLASSES)
    path = folder / f"{workload.name}.npz"
    np.savez(
        path,
        x_train=x[np.concatenate(dealt)],
        y_train=y[np.concatenate(dealt)],
        client_train=np.repeat(np.arange(workload.num_clients), workload.examples_per_client),
        x_test=x_test[: workload.num_test],
        y_test=y_test[: workload.num_test],
        client_test=np.arange(workload.num_test) % workload.num_clients,
        start=model.init(ours.SEED).numpy(),
    )
    return path, source


def invent(num: int) -> Side:
    rng = np.random.default_rng(0)
    side = FEATURE_SHAPE[-1]
    coarse = rng.standard_normal((CLASSES, TEMPLATES, side // 4, side // 4), dtype=np.float32)
    templates = coarse.repeat(4, axis=-2).repeat(4, axis=-1)
    y = rng.integers(0, CLASSES, num)
    x = templates[y, rng.integers(0, TEMPLATES, num)]
    x += NOISE * rng.standard_normal(x.shape, dtype=np.float32)
    y = np.where(rng.random(num) < REDRAWN, rng.integers(0, CLASSES, num), y)
    pixels = np.zeros(x.shape, np.uint8)
    within = np.s_[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    pixels[within] = np.clip(128 + 40 * x[within], 0, 255)
    return pixels.reshape(num, *FEATURE_SHAPE), y
