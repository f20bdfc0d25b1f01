import numpy as np
import pytest
import torch

from fedcome_ray.clients.evaluation import Evaluation, Scores, evaluation
from fedcome_ray.clients.rehearsal import random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Examples, Population, split_in_order
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.numerics.randomness import Stream, client_keys, fold, random_bits
from tests import plain_torch


def test_metrics_are_means_over_each_clients_segment() -> None:
    scores = Scores(np.float32([1, 3, 5, 2]), np.array([True, False, True, True]))
    found = evaluation(scores, np.array([0, 2, 3, 4]))
    assert found.loss == 11 / 4
    assert found.accuracy == 3 / 4
    np.testing.assert_array_equal(found.client_loss, [2, 5, 2])
    np.testing.assert_array_equal(found.client_accuracy, [0.5, 1, 1])


def test_clients_without_examples_are_left_out_of_every_mean() -> None:
    scores = Scores(np.float32([1, 3, 5]), np.array([True, False, False]))
    found = evaluation(scores, np.array([0, 0, 2, 2, 3, 3]))
    np.testing.assert_array_equal(found.client_accuracy, [np.nan, 0.5, np.nan, 0, np.nan])
    np.testing.assert_array_equal(found.client_loss, [np.nan, 2, np.nan, 5, np.nan])
    assert (found.loss, found.accuracy) == (3, 1 / 3)
    assert found.summary["accuracy/client_mean"] == 0.25
    assert found.summary["loss/client_max"] == 5


def test_the_summary_shows_the_spread_between_clients() -> None:
    accuracy = np.linspace(0, 1, 20)
    summary = Evaluation(0.3, 0.5, np.arange(20.0), accuracy).summary
    assert summary["accuracy/client_mean"] == pytest.approx(0.5)
    assert summary["accuracy/worst_decile"] == pytest.approx(accuracy[:2].mean())
    assert summary["accuracy/best_decile"] == pytest.approx(accuracy[-2:].mean())
    assert summary["loss/client_max"] == 19


def personal_trial(**settings) -> Trial:
    local = {"batch_size": 4, "lr": 0.3, "momentum": 0.5, "steps": 7}
    base = {"local": local, "eval_personal_epochs": 2}
    return Trial.model_validate(base | settings)


def personal_population(feature_shape=(6,)) -> Population:
    """Clients with other examples for testing than for training, and other numbers of them."""
    train, test = (
        random_population(sizes, feature_shape, 3).train
        for sizes in ((9, 20, 1, 13, 20), (3, 600, 1, 2, 40))
    )
    return Population(train, test, 3)


def test_personal_results_are_those_of_plain_training_on_ones_own_examples() -> None:
    trial, population = personal_trial(model={"name": "logistic"}), personal_population()
    train, test, done = population.train, population.test, 3
    shards = LocalShards(trial, population, num_shards=2)
    params = shards.shards[0].model.init(0)
    found = shards.evaluate_personally(params, done)
    module = plain_torch.logistic(6, 3)
    hits = []
    for client in range(5):
        key = client_keys(trial.seed, Stream.PERSONAL_BATCHES, done, torch.tensor([client]))
        rows = torch.arange(train.offsets[client], train.offsets[client + 1])
        batches = [
            rows[random_bits(fold(key, epoch), len(rows))[0].argsort()].split(4)
            for epoch in range(2)
        ]
        x, y = map(torch.from_numpy, train.examples[:2])
        tuned = plain_torch.train(
            module,
            params,
            [(x[batch], y[batch]) for epoch in batches for batch in epoch],
            trial.local.lr_at(done),
            trial.local.weight_decay,
            momentum=0.5,
        )
        torch.nn.utils.vector_to_parameters(tuned, module.parameters())
        own = slice(test.offsets[client], test.offsets[client + 1])
        x, y = (torch.from_numpy(side[own]) for side in test.examples[:2])
        loss = torch.nn.functional.cross_entropy(module(x), y).item()
        assert found.client_loss[client] == pytest.approx(loss, rel=1e-5)
        hits.append((module(x).argmax(1) == y).sum().item())
    np.testing.assert_allclose(found.client_accuracy, hits / test.sizes)
    assert found.accuracy == pytest.approx(sum(hits) / test.sizes.sum())


@pytest.mark.parametrize("model", [{"name": "mlp"}, {"name": "conv2", "hidden": 9}])
def test_personal_results_do_not_depend_on_shards_and_blocks(model) -> None:
    trial, population = personal_trial(model=model), personal_population((1, 10, 10))
    params = LocalShards(trial, population).shards[0].model.init(0)
    expected = LocalShards(trial, population).evaluate_personally(params, 1)
    for num_shards in (2, 3, 5):
        found = LocalShards(trial, population, num_shards).evaluate_personally(params, 1)
        np.testing.assert_array_equal(found.client_loss, expected.client_loss)
    alone = LocalShards(trial, population)
    alone.shards[0].most_clients = lambda *_: 1
    found = alone.evaluate_personally(params, 1)
    np.testing.assert_array_equal(found.client_loss, expected.client_loss)


@pytest.mark.parametrize("side", ["test", "train"])
def test_chunks_score_either_side_example_by_example(side) -> None:
    rng = np.random.default_rng(0)
    sides = {
        name: split_in_order(
            Examples(rng.standard_normal((num, 6), dtype=np.float32), rng.integers(0, 3, num)),
            np.array([num - 7, 7]),
        )
        for name, num in (("train", 700), ("test", 530))
    }
    shard = Shard(Trial(), Population(**sides, num_classes=3))
    params, examples = shard.model.init(0), sides[side].examples
    scores = shard.evaluate(params, [0, 1], side)
    logits = shard.model.logits(params, torch.from_numpy(examples.x))
    expected = torch.nn.functional.cross_entropy(
        logits, torch.from_numpy(examples.y), reduction="none"
    )
    np.testing.assert_allclose(scores.loss, expected.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(scores.correct, logits.argmax(1).numpy() == examples.y)
