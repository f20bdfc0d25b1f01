"""What is known about a published dataset before any file is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcome_ray.datasets.download import Download
from fedcome_ray.datasets.npz_files import AnyArray
from fedcome_ray.datasets.population import FLOAT32, Description, Examples, Labels, Scale


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
    """Sizes, constants and files of a published dataset of images, or of texts as tokens."""

    name: str
    feature_shape: tuple[int, ...]  # channels, height, width; of texts, their length
    num_classes: int
    num_train: int
    num_test: int
    originals: Originals
    mean: tuple[float, ...] = ()  # of pixels in [0, 1], for each channel; texts have none
    std: tuple[float, ...] = ()
    clients: str | None = None  # what they are called, where they are natural
    sha256: str | None = None  # of the arrays, see `packed.fingerprint`

    @property
    def is_known_by_sizes_alone(self) -> bool:
        """Whether other images of the same number would be taken for it."""
        return self.sha256 is None and self.clients is None

    @property
    def is_text(self) -> bool:
        return not self.mean

    def examples(self, packed: NDArray[np.uint8], labels: Labels) -> Examples:
        """The same in memory: bytes of images stay bytes, those of texts become tokens."""
        if self.is_text:
            return Examples(packed.astype(np.int64), labels)
        return Examples(np.array(packed), labels, self.scale)

    @property
    def scale(self) -> Scale:
        """Pixels in [0, 1], minus the mean, over the standard deviation of their channel."""
        mean, std = (np.array(each)[:, None, None] for each in (self.mean, self.std))
        return Scale((1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32))

    def describe(self, num_train: int, num_test: int, num_clients: int) -> Description:
        dtype = np.dtype(np.int64) if self.is_text else FLOAT32
        sizes = num_train, num_test, num_clients
        return Description(self.feature_shape, self.num_classes, *sizes, dtype, not self.is_text)


def how_to_download(name: str, files: Sequence[str], folder: Path) -> list[str]:
    """For whoever lacks the files of a dataset that torchvision knows."""
    return [
        f"download: python -m fedcome_ray.data download {name}",
        f"by hand:  put {', '.join(files)} into {folder}",
    ]
