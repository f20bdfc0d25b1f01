"""What is known about the published datasets before any file is read."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Facts(NamedTuple):
    """Sizes and constants of a published dataset."""

    feature_shape: tuple[int, int, int]  # channels, height, width
    num_classes: int
    num_train: int
    num_test: int
    mean: tuple[float, ...]  # of pixels in [0, 1], for each channel
    std: tuple[float, ...]
    num_writers: int | None = None  # where each writer is a client
    sha256: str | None = None  # of the arrays, see `packed.fingerprint`

    def normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Pixels in [0, 1], minus the mean, over the standard deviation of their channel."""
        x = np.divide(pixels, 255, dtype=np.float32)
        x -= np.array(self.mean, dtype=np.float32)[:, None, None]
        x /= np.array(self.std, dtype=np.float32)[:, None, None]
        return x


FACTS = {
    "mnist": Facts(
        feature_shape=(1, 28, 28),
        num_classes=10,
        num_train=60_000,
        num_test=10_000,
        mean=(0.1307,),
        std=(0.3081,),
        sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "cifar10": Facts(
        feature_shape=(3, 32, 32),
        num_classes=10,
        num_train=50_000,
        num_test=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    ),
    # Without a checksum of its arrays; its original files have theirs, known to torchvision.
    "cifar100": Facts(
        feature_shape=(3, 32, 32),
        num_classes=100,
        num_train=50_000,
        num_test=10_000,
        mean=(0.5071, 0.4867, 0.4408),
        std=(0.2675, 0.2565, 0.2761),
    ),
    # Which writers there are depends on LEAF's sampling: these are the numbers of the FedCOME
    # paper, and the constants are MNIST's although the background is white, as there.
    "femnist": Facts(
        feature_shape=(1, 28, 28),
        num_classes=62,
        num_train=36_692,
        num_test=4_178,
        mean=(0.1307,),
        std=(0.3081,),
        num_writers=196,
    ),
}
