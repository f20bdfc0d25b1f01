import numpy as np
import pytest
import torch

from fedcome_ray.clients.evaluation import Evaluation, Scores, evaluation
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Examples, Population, split_in_order
from fedcome_ray.experiments.trial import Trial


def test_metrics_are_means_over_each_clients_segment() -> None:
    scores = Scores(np.float32([1, 3, 5, 2]), np.array([True, False, True, True]))
    found = evaluation(scores, np.array([0, 2, 3, 4]))
    assert found.loss == 11 / 4
    assert found.accuracy == 3 / 4
    np.testing.assert_array_equal(found.client_loss, [2, 5, 2])
    np.testing.assert_array_equal(found.client_accuracy, [0.5, 1, 1])


def test_the_summary_shows_the_spread_between_clients() -> None:
    accuracy = np.linspace(0, 1, 20)
    summary = Evaluation(0.3, 0.5, np.arange(20.0), accuracy).summary
    assert summary["accuracy/client_mean"] == pytest.approx(0.5)
    assert summary["accuracy/worst_decile"] == pytest.approx(accuracy[:2].mean())
    assert summary["accuracy/best_decile"] == pytest.approx(accuracy[-2:].mean())
    assert summary["loss/client_max"] == 19


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
