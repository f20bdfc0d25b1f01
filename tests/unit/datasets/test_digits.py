import numpy as np
from sklearn.datasets import load_digits

from fedcome_ray import datasets


def test_digits_are_shared_out_almost_evenly() -> None:
    population = datasets.load(datasets.Digits())
    assert population.train.sizes.min() >= 26
    assert population.train.sizes.max() <= 42
    assert 0 <= population.train.examples.x.min() <= population.train.examples.x.max() <= 1


def test_they_are_the_digits_of_scikit_learn() -> None:
    pixels, labels = load_digits(return_X_y=True)
    population = datasets.load(datasets.Digits())
    is_test = np.arange(len(labels)) % 5 == 4
    for side, chosen in ((population.train, ~is_test), (population.test, is_test)):
        assert np.array_equal(side.examples.x[:, 0], pixels[chosen].reshape(-1, 8, 8) / 16)
        assert np.array_equal(side.examples.y, labels[chosen])
