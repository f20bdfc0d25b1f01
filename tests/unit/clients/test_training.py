"""Training of blocks against the plain loop of `plain_torch`, one client at a time."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from fedcome_ray import models
from fedcome_ray.clients.batches import ClientExamples, blocks, padded_width
from fedcome_ray.clients.training import Trainer
from fedcome_ray.experiments.trial import LocalConfig
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import AnyMethod, Method, Nothing, OnlyParams
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
    limit = 100 if model.is_stacked(start.device) else 1
    reports = {}
    for width, block in blocks(examples.sizes(cohort), local.batch_size, lambda *_: limit):
        _, report = trainer.train(cohort[block], width, OnlyParams(start), Nothing(), ROUND)
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
        for epoch in range(local.epochs):
            order = random_bits(fold(order_key, epoch), len(rows))[0].argsort()
            for batch in rows[order].split(local.batch_size or len(rows)):
                for layer, drop in enumerate(drops):
                    shape = (len(batch), *model.dropout.shapes[layer])
                    key = fold(fold(mask_key, step), layer)
                    mask = dropout_mask(key, math.prod(shape), model.dropout.rate).reshape(shape)
                    drop.mask = mask.movedim(-1, 1).to(start.dtype)  # channels first
                yield examples.x[batch], examples.y[batch]
                step += 1

    lr = local.lr_at(ROUND)
    after = plain_torch.train(module, start, batches(), lr, local.weight_decay, local.clip_norm)
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
    ],
    ids=["batches", "clipped", "full_batch"],
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
        return nn.Sequential(nn.Linear(20, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.Linear(6, 10))

    model, module, examples = models.from_module(make, (20,)), make(), make_examples((20,), 10)
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


def test_a_report_says_how_far_and_on_how_much_clients_trained() -> None:
    model, examples = make_model({"name": "logistic"}, (20,), 10), make_examples((20,), 10)
    local = LocalConfig(lr=0.5, lr_decay=0.5, batch_size=5, epochs=2)
    report = train(model, examples, local, model.init(0))
    assert report["num_examples"].tolist() == [[size] for size in SIZES]
    steps = [2 * math.ceil(size / 5) for size in SIZES]
    assert report["total_lr"].tolist() == [[0.5 * 0.5**ROUND * num] for num in steps]
    assert report["loss"].isnan().all()


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
    found = list(blocks(sizes, 50, most_clients=lambda width, size: 2))
    assert sorted(position for _, block in found for position in block) == list(range(8))
    assert max(len(block) for _, block in found) == 2
    for width, block in found:
        assert {padded_width(size, 50) for size in sizes[block].tolist()} == {width}
        assert (np.diff(sizes[block]) <= 0).all()
