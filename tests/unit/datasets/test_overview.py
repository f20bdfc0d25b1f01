import numpy as np
import pytest

from fedcome_ray.datasets import overview


def test_alike_clients_have_heterogeneity_0_and_disjoint_ones_almost_1() -> None:
    assert overview.heterogeneity(np.full((5, 10), 3)) == 0
    assert overview.heterogeneity(np.eye(100, dtype=int) * 7) == pytest.approx(0.99)


def test_two_of_ten_classes_have_heterogeneity_four_fifths() -> None:
    counts = np.kron(np.eye(5, dtype=int), [[4, 4]])
    assert overview.heterogeneity(counts) == pytest.approx(0.8)
