from fedcome_ray import datasets


def test_digits_are_shared_out_almost_evenly() -> None:
    population = datasets.load(datasets.Digits())
    assert population.train.sizes.min() >= 26
    assert population.train.sizes.max() <= 42
    assert 0 <= population.train.examples.x.min() <= population.train.examples.x.max() <= 1
