from pathlib import Path

import numpy as np
import pytest

from fedcome_ray.datasets.population import Labels

# The labels of CIFAR-10's training images in their published order (no images): the published
# partition is a function of this order alone.
CIFAR10_LABELS = Path(__file__).with_name("cifar10_train_labels.npz")


@pytest.fixture(scope="package")
def cifar10_labels() -> Labels:
    with np.load(CIFAR10_LABELS) as file:
        return file["y_train"].astype(np.int64)
