"""Results do not depend, not even in their last bit, on how clients are put together."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Examples, Population, split_in_order
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.methods.method import Report
from fedcome_ray.numerics.arrays import Arrays

FEATURES, CLASSES = {"mlp": (17,), "logistic": (17,), "conv2": (1, 10, 10)}, 4


def make_population(sizes, feature_shape, seed=0) -> Population:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((sum(sizes), *feature_shape), dtype=np.float32)
    examples = Examples(x, rng.integers(0, CLASSES, len(x)))
    each = split_in_order(examples, np.array(sizes))
    return Population(each, each, CLASSES)


def fields(report) -> Tensor:
    return torch.cat([report.update, report.total_lr, report.num_examples], dim=1)


def train(shard, clients, round_index=0) -> Report:
    """The report of clients that have just received the first params."""
    method, params = shard.method, shard.model.init(1)
    server = method.init_server(params, len(shard.train_examples.offsets) - 1)
    return shard.train(method.broadcast(server), clients, round_index)


# Lengths of batches for which libraries have routines of their own.
telling_sizes = st.sampled_from([1, 2, 3, 49, 50])
sizes_of_clients = st.lists(st.one_of(telling_sizes, st.integers(1, 40)), min_size=1, max_size=12)
batch_sizes = st.one_of(st.none(), telling_sizes, st.integers(1, 12))
CORRECTING = ["fedavg", "fedprox", "scaffold", "feddyn", "feddc"]


@settings(deadline=None, max_examples=150)
@given(
    model=st.sampled_from(["mlp", "logistic", "mlp", "conv2"]),
    method=st.sampled_from(CORRECTING),
    sizes=sizes_of_clients,
    batch_size=batch_sizes,
    clip_norm=st.sampled_from([None, 0.5]),
    length=st.sampled_from([{"epochs": 2}, {"steps": 5}]),
    momentum=st.sampled_from([0.0, 0.9]),
    features=st.integers(1, 40),
    hidden=st.integers(1, 40),
    data=st.data(),
)
def test_a_client_is_trained_the_same_in_any_company(
    model, method, sizes, batch_size, clip_norm, length, momentum, features, hidden, data
) -> None:
    shape = FEATURES["conv2"] if model == "conv2" else (features,)
    settings = {
        "model": {"name": model, **({"hidden": [hidden]} if model == "mlp" else {})},
        "method": {"name": method},
        "local": {
            "batch_size": batch_size,
            "clip_norm": clip_norm,
            "momentum": momentum,
            **length,
        },
    }
    shard = Shard(Trial.model_validate(settings), make_population(sizes, shape))
    together = train(shard, tuple(range(len(sizes))))
    cohort = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    most_clients = data.draw(st.integers(1, 5))
    if model != "conv2":
        shard.most_clients = lambda *_: most_clients
    apart = train(shard, tuple(cohort))
    # Some of these clients diverge: theirs is not a number in both.
    np.testing.assert_array_equal(fields(apart), fields(together)[cohort])


@pytest.mark.parametrize("num_shards", [2, 3, 5])
@pytest.mark.parametrize("method", CORRECTING)
@pytest.mark.parametrize("model", ["mlp", "conv2"])
def test_the_number_of_shards_changes_no_bit(model, method, num_shards) -> None:
    """Over two rounds, with a cohort that leaves one client, or none, in some of the shards."""
    population = make_population([9, 50, 14, 1, 22, 49, 3, 2], FEATURES[model])
    settings = {
        "model": {"name": model},
        "method": {"name": method},
        "local": {"batch_size": 10, "epochs": 2},
        "sampler": {"name": "similarity"},
        "cohort_size": 4,
    }
    trial = Trial.model_validate(settings)

    def run(num_shards) -> tuple[Tensor, NDArray[np.float64], Arrays]:
        shards = LocalShards(trial, population, num_shards)
        server = Server(trial, shards.shards[0].model.init(1), population.num_clients)
        records = [run_round(server, shards, evaluate_train=True) for _ in range(2)]
        losses = [side.client_loss for r in records for side in (r.test, r.train)]
        return server.params, np.stack(losses), shards.export_states()

    params, losses, states = run(1)
    other_params, other_losses, other_states = run(num_shards)
    assert torch.equal(params, other_params)
    np.testing.assert_array_equal(losses, other_losses)
    for name, values in states.items():
        np.testing.assert_array_equal(values, other_states[name])


@pytest.mark.parametrize("offset", [1, 2, 3, 7])
@pytest.mark.parametrize("model", sorted(FEATURES))
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddc"])
def test_where_updates_are_written_to_changes_no_bit(method, model, offset) -> None:
    """A shard's rows begin anywhere in the report of the whole cohort."""
    population = make_population([9, 30, 14, 1], FEATURES[model])
    trial = Trial.model_validate({"model": {"name": model}, "method": {"name": method}})
    shard, other = Shard(trial, population), Shard(trial, population)
    server = shard.method.init_server(shard.model.init(1), 4)
    received, cohort = shard.method.broadcast(server), (0, 1, 2, 3)
    memory = torch.zeros(4 * shard.model.dim + offset)
    displaced = Report.around(memory[offset:].view(4, -1))
    for number in range(2):
        expected = shard.train(received, cohort, number)
        found = other.train(received, cohort, number, displaced)
        assert found.update.data_ptr() == displaced.update.data_ptr()
        for one, same in zip(found.fields(), expected.fields(), strict=True):
            torch.testing.assert_close(one, same, rtol=0, atol=0, equal_nan=True)
    for name, values in shard.states.export().items():
        np.testing.assert_array_equal(values, other.states.export()[name])


@pytest.mark.parametrize(("rows", "inner", "columns"), [(50, 784, 64), (50, 64, 10), (2, 5, 3)])
def test_the_library_multiplies_each_matrix_of_a_block_alike(rows, inner, columns) -> None:
    """What the promise of equal bits rests on; should a release of PyTorch break it, see here."""
    rng = np.random.default_rng(0)
    x, weight, error = (
        torch.from_numpy(rng.standard_normal((9, *shape), dtype=np.float32))
        for shape in ((rows, inner), (columns, inner), (rows, columns))
    )

    def products(clients) -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.bmm(x[clients], weight[clients].mT),
            torch.bmm(error[clients], weight[clients]),
            weight[clients].clone().baddbmm_(error[clients].mT, x[clients], beta=0.9, alpha=-0.1),
        )

    for num in (1, 2, 3, 8):
        for some, every in zip(products(slice(0, num)), products(slice(0, 9)), strict=True):
            assert torch.equal(some, every[:num])
