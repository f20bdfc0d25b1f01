"""FEMNIST: the writers are the clients, so that no partition is needed.

Caldas et al., LEAF: A Benchmark for Federated Settings. https://leaf.cmu.edu
"""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import PositiveInt

from fedcome_ray.datasets import leaf, natural
from fedcome_ray.datasets.leaf import Decoded
from fedcome_ray.datasets.natural import Natural
from fedcome_ray.datasets.published import Originals, Published

PAPERS_WRITERS = 196


class Femnist(Natural):
    """Handwritten digits and letters of 28x28 pixels; each writer is a client."""

    dataset: Literal["femnist"] = "femnist"
    num_clients: PositiveInt | None = None
    """The first writers by id; None: all that there are."""


def decode(data: Any) -> Decoded:
    """The images of one writer as bytes."""
    try:
        levels = np.array(data["x"], dtype=np.float64).reshape(-1, 1, 28, 28) * 255
        labels = np.array(data["y"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"has no images of 28x28 ({error})") from None
    if len(levels) != labels.size or labels.size == 0:
        raise ValueError(f"has {len(levels)} images, {labels.size} labels")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError("has labels that are not a list of whole numbers")
    pixels = np.round(levels)
    # LEAF divides bytes by 255; anything else would lose precision here, NaN its meaning.
    if not np.all((np.abs(pixels - levels) < 0.01) & (pixels >= 0) & (pixels <= 255)):
        raise ValueError("has pixels that are not multiples of 1/255 in 0..1")
    return pixels.astype(np.uint8), labels.astype(np.int64)


def are_present(folder: Path) -> bool:
    return leaf.find(folder, "femnist") is not None


def how_to_get(folder: Path) -> list[str]:
    return [
        "make it:  LEAF's `preprocess.sh -s niid --sf 0.05 -k 0 -t sample`, then put its "
        f"folders train and test (JSON files) into {folder / 'femnist'}"
    ]


# Which writers there are depends on LEAF's sampling: these are the numbers of the FedCOME
# paper, and the constants are MNIST's although the background is white, as there.
PUBLISHED = Published(
    name="femnist",
    feature_shape=(1, 28, 28),
    num_classes=62,
    num_train=36_692,
    num_test=4_178,
    mean=(0.1307,),
    std=(0.3081,),
    clients=f"writers (the paper has {PAPERS_WRITERS})",
    originals=Originals(
        are_present, partial(leaf.read, "femnist", decode), how_to_get, are_imported=True
    ),
)

DATASET = natural.dataset(Femnist, PUBLISHED, PAPERS_WRITERS, "FEMNIST")
