"""Modules of users as models: what they must be, and what is made of their dropout."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

from fedcome_ray import models
from fedcome_ray.errors import ConfigError
from fedcome_ray.models import Batch, from_module, views


class Constants(nn.Module):
    """Positions and a mask that are never changed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("places", torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + self.places)


class Counting(Constants):
    def forward(self, x: Tensor) -> Tensor:
        self.places += 1
        return super().forward(x)


class Noisy(Constants):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.rand_like(x))


class Whitened(Constants):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class FromNumpy(Constants):
    def __init__(self) -> None:
        super().__init__()
        self.layer.weight.data += float(np.random.default_rng().random())


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).requires_grad_(False))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), r"BatchNorm \(1\).*GroupNorm"),
        (
            lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            "GroupNorm instead of BatchNorm",
        ),
        (Counting, r"changes its buffers \(places\)"),
        (Noisy, "draws random numbers in its forward pass; use `nn.Dropout`"),
        (Whitened, "other logits in company than alone"),
        (FromNumpy, "other initial parameters each time"),
        (frozen, r"parameters without gradient \(1.weight, 1.bias\)"),
        (lambda: nn.Linear(4, 2), r"gives shape \[2, 2\] for 2 examples, expected \[2, 3\]"),
        (lambda: nn.Linear(5, 3), r"cannot take the examples.*of 4: RuntimeError: mat1"),
        (lambda: nn.LSTM(4, 3), "gives tuple"),
        (lambda: nn.LSTM(4, 3, 2, dropout=0.1), "drops inside"),
        (lambda: nn.Sequential(nn.Dropout1d(), nn.Linear(4, 3)), "`Dropout1d` is not supported"),
    ],
)
def test_a_module_that_clients_could_not_train_is_refused(make, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        from_module(make, (4,), 3)
    assert "\n" not in str(raised.value)


def test_constants_are_allowed() -> None:
    model, module = from_module(Constants, (4,), 3), Constants()
    params, x = model.init(1), torch.randn(5, 4)
    vector_to_parameters(params, module.parameters())
    torch.testing.assert_close(model.logits(params, x), module(x))
    assert model.activations > 0  # on a device where they have to be, too


def test_nothing_is_drawn_from_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    from_module(lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout()), (4,), 3).init(5)
    assert torch.equal(before, torch.random.get_rng_state())


def dropping() -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(0.25),
        nn.Linear(4, 6),
        nn.Dropout(0.0),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(6, 3),
    )


def test_dropout_is_asked_of_the_clients_streams() -> None:
    model = from_module(dropping, (4,), 3)
    assert model.dropout == ((0.25, 0.5), ((4,), (6,)))


def test_masks_are_applied_where_the_module_drops() -> None:
    """Oracle: the module written out, and its gradient by autograd."""
    model = from_module(dropping, (4,), 3)
    params, x, y = model.init(0), torch.randn(5, 4), torch.arange(5) % 3
    first, second = torch.rand(5, 4), torch.rand(5, 6)
    gradient = torch.zeros(1, model.dim)
    batch = Batch(x[None], y[None], torch.full((1, 5), 0.2), [first[None], second[None]])
    parts, tensors = views(gradient, model.shapes), views(params[None], model.shapes)
    model.add_gradient(parts, tensors, batch, keep=0.0, scale=1.0)

    leaf = params.clone().requires_grad_()
    w1, b1, w2, b2 = views(leaf, model.shapes)
    hidden = torch.relu((x * first) @ w1.T + b1) * second
    functional.cross_entropy(hidden @ w2.T + b2, y).backward()
    torch.testing.assert_close(gradient[0], leaf.grad)
    plain = torch.relu(x @ w1.T + b1) @ w2.T + b2
    torch.testing.assert_close(model.logits(params, x), plain.detach())


def test_a_layer_that_is_not_used_has_no_gradient() -> None:
    class Unused(Constants):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(2, 2)

    assert from_module(Unused, (4,), 3).dim == 4 * 3 + 3 + 2 * 2 + 2


def test_tokens_reach_a_module_as_what_embeddings_take() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Embedding(9, 5), nn.Flatten(), nn.Linear(20, 3))

    model, module = from_module(make, (4,), 3, np.int16), make()
    params, x = model.init(2), torch.randint(0, 9, (6, 4))
    vector_to_parameters(params, module.parameters())
    torch.testing.assert_close(model.logits(params, x.short()), module(x))
    with pytest.raises(ConfigError, match=r"cannot take the examples of this dataset, float32"):
        from_module(make, (4,), 3)


def test_the_transformer_is_that_of_pytorch() -> None:
    """Oracle: PyTorch's encoder layers, normalised first, with the same parameters."""
    config = models.REGISTRY["transformer"].config(width=8, heads=2, layers=2, vocabulary=11)
    model = models.build(config, (6,), 5, np.int64)
    tensors = views(params := model.init(3), model.shapes)
    place, token, *rest = tensors
    x = torch.randint(0, 11, (4, 6))
    hidden = token[x] + place
    for layer in range(2):
        theirs = nn.TransformerEncoderLayer(
            8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True
        )
        norm_a, project, join, norm_b, up, down = (
            rest[12 * layer :][i : i + 2] for i in range(0, 12, 2)
        )
        own = [*project, *join, *up, *down, *norm_a, *norm_b]
        for parameter, value in zip(theirs.parameters(), own, strict=True):
            assert parameter.shape == value.shape
            parameter.data = value
        hidden = theirs(hidden)
    weight, bias, out, out_bias = rest[24:]
    last = functional.layer_norm(hidden[:, -1], (8,), weight, bias)
    torch.testing.assert_close(
        model.logits(params, x), (last @ out.T + out_bias).detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_resnet18_takes_grey_and_coloured_pictures(channels) -> None:
    model = models.build(models.REGISTRY["resnet18"].config(width=4), (channels, 8, 8), 10)
    assert model.logits(model.init(0), torch.randn(2, channels, 8, 8)).shape == (2, 10)


def test_resnet18_is_four_stages_of_two_blocks() -> None:
    """Oracle: the network written out, layer by layer."""
    model = models.build(models.REGISTRY["resnet18"].config(width=4), (3, 16, 16), 10)
    params, x = model.init(0), torch.randn(2, 3, 16, 16)
    tensors = iter(views(params, model.shapes))

    def layer(x: Tensor, stride: int = 1) -> Tensor:
        weight = next(tensors)
        convolved = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        return functional.group_norm(convolved, 2, next(tensors), next(tensors))

    hidden = layer(x).relu()
    for stride in (1, 1, 2, 1, 2, 1, 2, 1):
        inner = layer(layer(hidden, stride).relu())
        hidden = (inner + (layer(hidden, stride) if stride == 2 else hidden)).relu()
    weight, bias = tensors
    torch.testing.assert_close(
        model.logits(params, x), hidden.mean((2, 3)) @ weight.T + bias, rtol=1e-4, atol=1e-5
    )


def test_models_say_which_examples_they_take() -> None:
    registry = models.REGISTRY
    with pytest.raises(ConfigError, match="`transformer` needs sequences of token ids"):
        models.build(registry["transformer"].config(), (1, 8, 8), 10)
    with pytest.raises(ConfigError, match="`resnet18` needs images"):
        models.build(registry["resnet18"].config(), (60,), 10)
    with pytest.raises(ConfigError, match=r"model\.width: must be a multiple of model\.groups = 3"):
        models.build(registry["resnet18"].config(groups=3), (3, 8, 8), 10)
