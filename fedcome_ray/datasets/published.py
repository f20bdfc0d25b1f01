"""What is known about a published dataset before any file is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.download import Download
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.population import Description


@dataclass(frozen=True)
class Originals:
    """The files that a dataset was published as; every function takes the data folder."""

    are_present: Callable[[Path], bool]
    read: Callable[[Path], dict[str, AnyArray]]
    """Their arrays, named as in a file to be imported."""
    how_to_get: Callable[[Path], list[str]]
    """Lines for whoever lacks them."""
    downloads: Callable[[Path], list[Download]] | None = None
    """None where nobody offers them ready-made."""
    are_imported: bool = False
    """Whether they can be imported from any folder, as a file of arrays can."""


@dataclass(frozen=True)
class Published:
    """Sizes, constants and files of a published dataset of images."""

    name: str
    feature_shape: tuple[int, int, int]  # channels, height, width
    num_classes: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]  # of pixels in [0, 1], for each channel
    std: tuple[float, ...]
    originals: Originals
    num_writers: int | None = None  # where each writer is a client
    sha256: str | None = None  # of the arrays, see `packed.fingerprint`

    @property
    def is_known_by_sizes_alone(self) -> bool:
        """Whether other images of the same number would be taken for it."""
        return self.sha256 is None and self.num_writers is None

    def normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Pixels in [0, 1], minus the mean, over the standard deviation of their channel."""
        x = np.divide(pixels, 255, dtype=np.float32)
        x -= np.array(self.mean, dtype=np.float32)[:, None, None]
        x /= np.array(self.std, dtype=np.float32)[:, None, None]
        return x

    def describe(self, num_train: int, num_test: int, num_clients: int) -> Description:
        return Description(self.feature_shape, self.num_classes, num_train, num_test, num_clients)


def how_to_download(name: str, files: Sequence[str], folder: Path) -> list[str]:
    """For whoever lacks the files of a dataset that torchvision knows."""
    return [
        f"download: python -m fedcome_ray.data download {name}",
        f"by hand:  put {', '.join(files)} into {folder}",
    ]
