"""Steps in buffers that stay where they are give the numbers of the usual loops."""

import pytest
import torch

from fedcome_ray.clients.batches import rounded_down, rounded_up
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.numerics import device, environment

SIZES = (3, 9, 9, 20, 1, 14, 9)
EVERYBODY = tuple(range(len(SIZES)))


def shard_of(model: dict, method: str, **local) -> Shard:
    settings = {"model": model, "method": {"name": method}, "local": {"batch_size": 4, **local}}
    return Shard(Trial.model_validate(settings), random_population(SIZES, (1, 12, 12), 4))


@pytest.mark.parametrize(
    "local",
    [
        {},
        {"epochs": 3},
        {"clip_norm": 0.1},
        {"batch_size": "full"},
        {"momentum": 0.9, "epochs": 2},
        {"steps": 5},
    ],
)
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddc", "fedprox"])
@pytest.mark.parametrize("model", [{"name": "mlp"}, {"name": "conv2", "hidden": 16}])
def test_rounds_are_the_same_up_to_rounding(model, method, local) -> None:
    usual, static = (shard_of(model, method, **local) for _ in range(2))
    static.take_static_steps()
    received = first_message(usual, len(SIZES))
    for number in range(3):  # the learning rate decays, states change, buffers are used again
        expected = usual.train(received, EVERYBODY, number)
        found = static.train(received, EVERYBODY, number)
        for one, other in zip(found.fields(), expected.fields(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
    for name, rows in usual.states.export().items():
        torch.testing.assert_close(
            torch.tensor(static.states.export()[name]), torch.tensor(rows), rtol=1e-4, atol=1e-5
        )


def test_buffers_serve_smaller_blocks_too() -> None:
    static = shard_of({"name": "mlp"}, "scaffold")
    static.take_static_steps()
    alone = shard_of({"name": "mlp"}, "scaffold")
    received = first_message(static, len(SIZES))
    static.train(received, EVERYBODY, 0)
    alone.train(received, EVERYBODY, 0)
    some = (1, 2, 3)
    found, expected = (shard.train(received, some, 1).update for shard in (static, alone))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_sizes_are_rounded_to_few() -> None:
    allowed = sorted({1, *(2**n for n in range(12)), *(3 * 2**n for n in range(11))})
    for number in range(1, 2000):
        assert rounded_up(number) == min(size for size in allowed if size >= number)
        assert rounded_down(number) == max(size for size in allowed if size <= number)


def test_steps_are_captured_only_on_cuda_and_if_asked_for(monkeypatch) -> None:
    monkeypatch.delenv(environment.CAPTURE, raising=False)
    assert not device.wants_capture(torch.device("cuda"))
    monkeypatch.setenv(environment.CAPTURE, "1")
    assert device.wants_capture(torch.device("cuda"))
    assert not device.wants_capture(device.CPU)
    assert shard_of({"name": "mlp"}, "fedavg").trainer.static_steps is None
