import numpy as np
import pytest

from fedcome_ray.datasets.partitions import (
    ClassesPerClient,
    Dirichlet,
    Iid,
    Ring2,
    SortedShards,
    partition,
)
from fedcome_ray.errors import DataError


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ClassesPerClient(), [81, 77, 83]),
        (SortedShards(), [80, 81, 82]),
        (Dirichlet(), [8, 27, 70]),
        (Iid(), [86, 101, 48]),
    ],
)
def test_a_seed_means_the_same_everywhere(config, expected) -> None:
    """Recorded on Linux, Python 3.11, NumPy 2.4: guards against a change of the generators."""
    labels = np.arange(120) // 12
    assert partition(config, labels, 6, seed=1)[0][:3].tolist() == expected


@pytest.mark.parametrize(
    ("config", "num_clients", "message"),
    [
        (Iid(), 21, "21 clients cannot share 20 examples"),
        (ClassesPerClient(classes=3), 10, "30 pieces .* 20 examples"),
        (ClassesPerClient(classes=1), 5, "5 pieces .* 10 classes"),
        (SortedShards(per_client=3), 10, "10 clients of 3 pieces cannot share 20 examples"),
        (Ring2(), 21, "21 clients cannot share"),
    ],
)
def test_too_few_examples_are_an_error(config, num_clients, message) -> None:
    with pytest.raises(DataError, match=message):
        partition(config, np.arange(20) % 10, num_clients, seed=1)
