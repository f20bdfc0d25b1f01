"""Results do not depend, not even in their last bit, on how clients are put together."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcome_ray.config import Trial
from fedcome_ray.federation import LocalShards
from fedcome_ray.methods.method import OnlyParams, Report
from fedcome_ray.population import Examples, Population, split_in_order
from fedcome_ray.shard import Shard

FEATURES, CLASSES = {"mlp": (17,), "logistic": (17,), "conv2": (1, 10, 10)}, 4


def make_population(sizes, feature_shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((sum(sizes), *feature_shape), dtype=np.float32)
    examples = Examples(x, rng.integers(0, CLASSES, len(x)))
    each = split_in_order(examples, np.array(sizes))
    return Population(each, each, CLASSES)


def make_trial(model, **local):
    return Trial.model_validate({"model": {"name": model}, "local": local, "seed": 3})


def fields(report):
    return torch.cat([report.update, report.total_lr, report.num_examples], dim=1)


sizes_of_clients = st.lists(st.integers(1, 40), min_size=1, max_size=12)
batch_sizes = st.one_of(st.none(), st.integers(1, 12))


@settings(deadline=None, max_examples=60)
@given(
    model=st.sampled_from(["mlp", "logistic", "mlp", "conv2"]),
    sizes=sizes_of_clients,
    batch_size=batch_sizes,
    clip_norm=st.sampled_from([None, 0.5]),
    data=st.data(),
)
def test_a_client_is_trained_the_same_in_any_company(model, sizes, batch_size, clip_norm, data):
    trial = make_trial(model, batch_size=batch_size, clip_norm=clip_norm, epochs=2)
    shard = Shard(trial, make_population(sizes, FEATURES[model]))
    received = OnlyParams(shard.model.init(1))
    together = shard.train(received, tuple(range(len(sizes))), 0)
    cohort = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    most_clients = data.draw(st.integers(1, 5))
    if model != "conv2":
        shard.most_clients = lambda width: most_clients
    apart = shard.train(received, tuple(cohort), 0)
    assert torch.equal(fields(apart), fields(together)[cohort])


@pytest.mark.parametrize("model", ["mlp", "conv2"])
@pytest.mark.parametrize("num_shards", [2, 3])
def test_the_number_of_shards_changes_no_bit(model, num_shards):
    population = make_population([9, 30, 14, 1, 22, 30, 8], FEATURES[model])
    trial = make_trial(model, batch_size=10, epochs=3)
    one, many = LocalShards(trial, population), LocalShards(trial, population, num_shards)
    params = one.shards[0].model.init(1)
    cohort = (0, 1, 2, 4, 5, 6)
    expected = Report.concatenate(one.train(OnlyParams(params), cohort, 0))
    report = Report.concatenate(many.train(OnlyParams(params), cohort, 0))
    assert torch.equal(fields(report), fields(expected))
    np.testing.assert_array_equal(
        one.evaluate(params).client_loss, many.evaluate(params).client_loss
    )


@pytest.mark.parametrize(("rows", "inner", "columns"), [(50, 784, 64), (50, 64, 10), (2, 5, 3)])
def test_the_library_multiplies_each_matrix_of_a_block_alike(rows, inner, columns):
    """What the promise of equal bits rests on; should a release of PyTorch break it, see here."""
    rng = np.random.default_rng(0)
    x, weight, error = (
        torch.from_numpy(rng.standard_normal((9, *shape), dtype=np.float32))
        for shape in ((rows, inner), (columns, inner), (rows, columns))
    )

    def products(clients):
        return (
            torch.bmm(x[clients], weight[clients].mT),
            torch.bmm(error[clients], weight[clients]),
            weight[clients].clone().baddbmm_(error[clients].mT, x[clients], beta=0.9, alpha=-0.1),
        )

    for num in (1, 2, 3, 8):
        for some, every in zip(products(slice(0, num)), products(slice(0, 9)), strict=True):
            assert torch.equal(some, every[:num])
