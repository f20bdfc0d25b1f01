"""Files of datasets for several nodes to have."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets import femnist, sources


def write_femnist(folder: Path, num_images: int, num_writers: int, seed: int = 0) -> None:
    """Noise that is taken for FEMNIST; two images of each writer to test on."""
    draws = np.random.default_rng(seed)
    columns: dict[str, NDArray[Any]] = {}
    for side, number in (("train", num_images), ("test", 2 * num_writers)):
        columns[f"x_{side}"] = draws.integers(0, 256, (number, 28, 28), np.uint8)
        columns[f"y_{side}"] = draws.integers(0, 62, number)
        columns[f"client_{side}"] = np.arange(number) % num_writers
    folder.mkdir()
    np.savez(folder / "made.npz", allow_pickle=False, **columns)
    sources.import_arrays(femnist.PUBLISHED, folder / "made.npz", folder)
