"""Training of blocks against the plain loop of `plain_torch`, one client at a time."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from fedcome_ray import models
from fedcome_ray.clients.batches import ClientExamples, blocks, padded_width
from fedcome_ray.clients.training import Trainer
from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Affine, AnyMethod, Method, Nothing, OnlyParams, affine
from fedcome_ray.numerics.randomness import Stream, client_keys, dropout_mask, fold, random_bits
from tests import plain_torch

SEED, ROUND = 11, 4
SIZES = [23, 5, 12, 1, 12]
# Per coordinate, against the largest one: rounding of some ten steps in another order.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def only_training(**changes) -> AnyMethod:
    """A method as far as clients see it."""
    slots = {"correct": parts.uncorrected, "carry": parts.keep, **changes}
    return Method(parts.only_params, parts.stateless, parts.send_params, aggregate=None, **slots)


def make_examples(feature_shape, num_classes, dtype=torch.float32, sizes=SIZES) -> ClientExamples:
    rng = np.random.default_rng(0)
    num = sum(sizes)
    return ClientExamples(
        torch.from_numpy(rng.standard_normal((num, *feature_shape))).to(dtype),
        torch.from_numpy(rng.integers(0, num_classes, num)),
        torch.from_numpy(rng.permutation(num)),
        np.concatenate([[0], np.cumsum(sizes)]),
    )


def make_model(settings, feature_shape, num_classes) -> models.Model:
    config = TypeAdapter(models.ModelConfig).validate_python(settings)
    return models.build(config, feature_shape, num_classes)


def train(model, examples, local, start, method=None, clients=None) -> dict[str, Tensor]:
    """The report of a cohort that is trained in as large blocks as possible."""
    trainer = Trainer(model, method or only_training(), local, examples, SEED)
    cohort = np.array(range(len(examples.offsets) - 1) if clients is None else clients)
    sizes, reports = examples.sizes(cohort), {}
    num_steps = local.num_steps(sizes)
    for width, block in blocks(sizes, num_steps, local, lambda *_: 100):
        _, report = trainer.train(
            cohort[block], num_steps[block], width, OnlyParams(start), Nothing(), ROUND
        )
        for row, position in enumerate(block):
            reports[position] = [getattr(report, name)[row] for name in FIELDS]
    columns = zip(*(reports[position] for position in range(len(cohort))), strict=True)
    return dict(zip(FIELDS, map(torch.stack, columns), strict=True))


FIELDS = ("update", "loss", "total_lr", "num_examples")


class GivenMasks(nn.Module):
    """A dropout layer whose masks are given."""

    def forward(self, x) -> Tensor:
        return x * self.mask


def plain_update(module, model, examples, local, start, client) -> Tensor:
    """What the plain loop learns from the batches and with the masks that are the client's due."""
    rows = examples.order[examples.offsets[client] : examples.offsets[client + 1]]
    ids = torch.tensor([client])
    order_key = client_keys(SEED, Stream.BATCHES, ROUND, ids)
    mask_key = client_keys(SEED, Stream.DROPOUT, ROUND, ids)
    drops = [layer for layer in module.modules() if isinstance(layer, GivenMasks)]

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        step = 0
        for epoch in range(local.epochs or local.steps):
            order = random_bits(fold(order_key, epoch), len(rows))[0].argsort()
            for batch in rows[order].split(local.batch_size or len(rows)):
                if step == local.steps:
                    return
                for layer, drop in enumerate(drops):
                    shape = (len(batch), *model.dropout.shapes[layer])
                    key = fold(fold(mask_key, step), layer)
                    rate = model.dropout.rates[layer]
                    mask = dropout_mask(key, math.prod(shape), rate).reshape(shape)
                    drop.mask = mask.movedim(-1, 1).to(start.dtype)  # channels first
                yield examples.x[batch], examples.y[batch]
                step += 1

    lr = local.lr_at(ROUND)
    after = plain_torch.train(
        module, start, batches(), lr, local.weight_decay, local.clip_norm, local.momentum
    )
    return after - start


def with_given_masks(module) -> nn.Sequential:
    layers = [GivenMasks() if isinstance(layer, nn.Dropout) else layer for layer in module]
    return nn.Sequential(*layers)


MODELS = {
    "mlp": ({"name": "mlp", "hidden": [16]}, (20,), 10, plain_torch.mlp(20, 16)),
    "logistic": ({"name": "logistic"}, (20,), 10, plain_torch.logistic(20, 10)),
    "conv2": ({"name": "conv2"}, (1, 14, 14), 10, plain_torch.conv2(10, flat=256)),
    "conv4": ({"name": "conv4", "hidden": 32}, (3, 18, 18), 10, plain_torch.conv4(10, 32, flat=64)),
    "mcmahan": ({"name": "mcmahan"}, (1, 8, 8), 10, plain_torch.mcmahan(1, 10, 256)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "local",
    [
        LocalConfig(lr=0.1, epochs=2, batch_size=5, weight_decay=0.01),
        LocalConfig(lr=0.1, epochs=2, batch_size=5, weight_decay=0.01, clip_norm=0.5),
        LocalConfig(lr=0.1, epochs=3, batch_size=None, weight_decay=0.0),
        LocalConfig(lr=0.1, epochs=2, batch_size=5, weight_decay=0.01, momentum=0.9),
        LocalConfig(lr=0.1, steps=7, batch_size=5, weight_decay=0.01, momentum=0.5, clip_norm=0.5),
        LocalConfig(lr=0.1, steps=4, batch_size=5),
    ],
    ids=["batches", "clipped", "full_batch", "momentum", "momentum_clipped", "steps"],
)
@pytest.mark.parametrize("name", MODELS)
def test_every_client_gets_the_update_of_the_plain_loop(name, local, dtype) -> None:
    settings, feature_shape, num_classes, module = MODELS[name]
    model = make_model(settings, feature_shape, num_classes)
    module = with_given_masks(module).to(dtype)
    examples = make_examples(feature_shape, num_classes, dtype)
    start = model.init(seed=3).to(dtype)
    updates = train(model, examples, local, start)["update"]
    for client, update in enumerate(updates):
        expected = plain_update(module, model, examples, local, start, client)
        scale = expected.abs().max().item()
        torch.testing.assert_close(update, expected, rtol=0, atol=TOLERANCE[dtype] * scale)


def test_a_users_module_gets_the_update_of_the_plain_loop() -> None:
    def make() -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(20, 6), nn.GroupNorm(2, 6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 10)
        )

    model, module = models.from_module(make, (20,), 10), with_given_masks(make())
    examples = make_examples((20,), 10)
    local, start = LocalConfig(batch_size=5, epochs=2), model.init(seed=3)
    updates = train(model, examples, local, start)["update"]
    for client, update in enumerate(updates):
        expected = plain_update(module, model, examples, local, start, client)
        torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-6)


def test_a_correction_is_followed() -> None:
    def towards_origin(grad, params, received, client) -> Tensor:
        return params - received.params + 1.0

    model, examples = make_model({"name": "logistic"}, (20,), 10), make_examples((20,), 10)
    local = LocalConfig(lr=0.5, lr_decay=1, batch_size=None, epochs=2, weight_decay=0)
    report = train(model, examples, local, model.init(0), only_training(correct=towards_origin))
    # From 0 to -0.5, then by -0.5 * (-0.5 + 1) to -0.75.
    torch.testing.assert_close(report["update"], torch.full((5, model.dim), -0.75))


class Kept(NamedTuple):
    shift: Tensor


@pytest.mark.parametrize("is_shared", [True, False])
def test_an_affine_correction_is_followed_as_if_it_were_any_other(is_shared) -> None:
    """Also where some clients are through with their steps before others."""
    model = make_model({"name": "mlp", "hidden": [3]}, (20,), 10)
    examples, start = make_examples((20,), 10), model.init(0)

    def offset(received, client) -> Tensor:
        return -received.params if is_shared else client.shift - received.params

    def terms(received, client) -> Affine:
        return Affine(offset(received, client), pull=0.4, share=0.7)

    def general(grad, params, received, client) -> Tensor:
        return 0.7 * grad + 0.4 * params + offset(received, client)

    clients, steps = np.array([0, 2, 4, 1]), np.array([4, 3, 3, 1])
    state = Kept(start * torch.arange(1, 5)[:, None])
    updates = []
    for correct in (affine(terms), general):
        method = only_training(correct=correct)
        trainer = Trainer(model, method, LocalConfig(batch_size=5), examples, SEED)
        _, report = trainer.train(clients, steps, 5, OnlyParams(start), state, ROUND)
        updates.append(report.update)
    torch.testing.assert_close(*updates, rtol=1e-4, atol=1e-6)


def test_a_report_says_how_far_and_on_how_much_clients_trained() -> None:
    model, examples = make_model({"name": "logistic"}, (20,), 10), make_examples((20,), 10)
    local = LocalConfig(lr=0.5, lr_decay=0.5, batch_size=5, epochs=2)
    report = train(model, examples, local, model.init(0))
    assert report["num_examples"].tolist() == [[size] for size in SIZES]
    steps = [2 * math.ceil(size / 5) for size in SIZES]
    assert report["total_lr"].tolist() == [[0.5 * 0.5**ROUND * num] for num in steps]
    assert report["loss"].isnan().all()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_mean_gradient_of_a_constant_gradient_is_that_gradient(momentum) -> None:
    """Whatever the number of steps and the momentum: so `total_lr` is the length of the path."""

    def constant(grad, params, received, client) -> Tensor:
        return torch.full_like(grad, 0.7)

    model, examples = make_model({"name": "logistic"}, (20,), 10), make_examples((20,), 10)
    local = LocalConfig(lr=0.3, batch_size=5, epochs=2, momentum=momentum, weight_decay=0)
    report = train(model, examples, local, model.init(0), only_training(correct=constant))
    mean_gradient = report["update"] / -report["total_lr"]
    torch.testing.assert_close(mean_gradient, torch.full((5, model.dim), 0.7), rtol=1e-5, atol=0)


def test_steps_are_as_many_for_every_client() -> None:
    model, examples = make_model({"name": "logistic"}, (20,), 10), make_examples((20,), 10)
    local = LocalConfig(lr=0.5, lr_decay=1, batch_size=5, steps=3)
    report = train(model, examples, local, model.init(0))
    assert report["total_lr"].tolist() == [[1.5]] * 5


def test_an_epoch_is_as_many_steps_as_it_has_batches() -> None:
    model, examples = (
        make_model({"name": "mlp"}, (20,), 10),
        make_examples((20,), 10, sizes=[20, 16]),
    )
    start = model.init(0)
    by_epochs, by_steps = (
        train(model, examples, LocalConfig(batch_size=5, **length), start)["update"]
        for length in ({"epochs": 2}, {"steps": 8})
    )
    assert torch.equal(by_epochs, by_steps)


def test_the_loss_is_that_of_the_params_received() -> None:
    model, examples = make_model({"name": "mlp"}, (20,), 10), make_examples((20,), 10)
    start = model.init(0)
    report = train(model, examples, LocalConfig(batch_size=5), start, only_training(uses_loss=True))
    loss = nn.functional.cross_entropy(
        model.logits(start, examples.x[examples.order]),
        examples.y[examples.order],
        reduction="none",
    )
    expected = torch.stack([part.mean() for part in loss.split(SIZES)])
    torch.testing.assert_close(report["loss"].squeeze(-1), expected)


def test_a_client_without_more_batches_does_not_move() -> None:
    model = make_model({"name": "mlp"}, (20,), 10)
    local, start = LocalConfig(batch_size=5), model.init(0)
    together = train(model, make_examples((20,), 10), local, start)["update"]
    # Client 1 has one batch, its block goes on for five.
    alone = train(model, make_examples((20,), 10), local, start, clients=[1])["update"]
    assert torch.equal(together[1], alone[0])


def test_training_never_leaves_its_device() -> None:
    """The meta device refuses to hand values to the host, and to mix with tensors of the CPU."""
    model, meta = make_model({"name": "mlp"}, (20,), 10), torch.device("meta")
    examples = make_examples((20,), 10)
    examples = examples._replace(
        x=examples.x.to(meta), y=examples.y.to(meta), order=examples.order.to(meta)
    )
    for local in (LocalConfig(batch_size=5), LocalConfig(batch_size=5, clip_norm=1.0)):
        report = train(model, examples, local, model.init(0).to(meta))
        assert {report[name].device for name in FIELDS} == {meta}
        assert report["update"].shape == (5, model.dim)


def test_convolutional_clients_form_blocks_on_other_devices_than_the_cpu() -> None:
    model, meta = make_model({"name": "conv2"}, (1, 14, 14), 10), torch.device("meta")
    examples = make_examples((1, 14, 14), 10)
    examples = examples._replace(
        x=examples.x.to(meta), y=examples.y.to(meta), order=examples.order.to(meta)
    )
    report = train(model, examples, LocalConfig(batch_size=5), model.init(0).to(meta))
    assert report["update"].shape == (5, model.dim)


@pytest.mark.parametrize(
    ("size", "batch_size", "width"),
    [(1, None, 2), (2, None, 2), (3, None, 3), (5, None, 6), (600, None, 768), (769, None, 1024),
     (600, 50, 50), (50, 50, 50), (41, 50, 48), (49, 50, 50), (7, 1, 2)],
)  # fmt: skip
def test_batches_are_padded_by_the_clients_own_size(size, batch_size, width) -> None:
    assert padded_width(size, batch_size) == width


def test_blocks_hold_every_client_once_and_no_more_than_fit() -> None:
    sizes = np.array([5, 300, 7, 50, 51, 50, 8, 1])
    local = LocalConfig(batch_size=50)
    found = list(blocks(sizes, local.num_steps(sizes), local, lambda width, size: 2))
    assert sorted(position for _, block in found for position in block) == list(range(8))
    assert max(len(block) for _, block in found) == 2
    for width, block in found:
        assert {padded_width(size, 50) for size in sizes[block].tolist()} == {width}
        assert (np.diff(sizes[block]) <= 0).all()


def test_clients_whose_orders_are_of_very_different_numbers_share_no_block() -> None:
    sizes, local = np.array([1000, 60, 990, 50, 960]), LocalConfig(batch_size=50, steps=40)
    found = list(blocks(sizes, local.num_steps(sizes), local, lambda width, size: 100))
    assert [sorted(sizes[block].tolist()) for _, block in found] == [[960, 990, 1000], [60], [50]]


def test_those_who_take_fewer_steps_come_last() -> None:
    sizes, num_steps = np.array([200, 300, 100]), np.array([2, 1, 2])
    (_, block), *others = blocks(sizes, num_steps, LocalConfig(batch_size=50), lambda *_: 100)
    assert (block.tolist(), others) == ([0, 2, 1], [])
