import math
from collections.abc import Iterator

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from fedcome_ray import models
from fedcome_ray.errors import ConfigError
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.models import Batch, convolutional, views
from fedcome_ray.numerics import environment
from tests import plain_torch

IMAGE, COLOUR = (1, 28, 28), (3, 32, 32)
SAME_MODELS = [
    ({"name": "mlp", "hidden": [64]}, IMAGE, 10, plain_torch.mlp()),
    ({"name": "logistic"}, (60,), 5, plain_torch.logistic(60, 5)),
    ({"name": "conv2"}, IMAGE, 62, plain_torch.conv2()),
    ({"name": "conv4"}, COLOUR, 10, plain_torch.conv4()),
    ({"name": "mcmahan"}, IMAGE, 62, plain_torch.mcmahan(1, 62, 64 * 49)),
]


def make(settings, feature_shape, num_classes, feature_dtype="float32") -> models.Model:
    config = TypeAdapter(models.ModelConfig).validate_python(settings)
    return models.build(config, feature_shape, num_classes, feature_dtype)


@pytest.mark.parametrize(
    ("settings", "feature_shape", "num_classes", "dim"),
    [
        ({"name": "mlp", "hidden": [64]}, IMAGE, 10, 50_890),
        ({"name": "conv2"}, IMAGE, 62, 870_334),
        ({"name": "conv4"}, COLOUR, 10, 918_090),
        ({"name": "conv4", "hidden": 1024}, COLOUR, 100, 1_835_172),
        ({"name": "mcmahan"}, IMAGE, 62, 1_690_046),
        ({"name": "mcmahan"}, COLOUR, 10, 2_156_490),
        ({"name": "mcmahan"}, COLOUR, 100, 2_202_660),
        ({"name": "logistic"}, (60,), 10, 610),
        # Torchvision's 11,689,512, with 3x3 for its 7x7 convolution and 10 for its 1,000 classes.
        ({"name": "resnet18"}, COLOUR, 10, 11_173_962),
    ],
)
def test_models_have_the_published_number_of_parameters(
    settings, feature_shape, num_classes, dim
) -> None:
    model = make(settings, feature_shape, num_classes)
    assert model.dim == dim == len(model.init(seed=0))


@pytest.mark.parametrize(("settings", "feature_shape", "num_classes", "module"), SAME_MODELS)
def test_logits_are_those_of_the_equivalent_module(
    settings, feature_shape, num_classes, module
) -> None:
    model = make(settings, feature_shape, num_classes)
    params, x = model.init(seed=1), torch.randn(4, *feature_shape)
    vector_to_parameters(params, module.parameters())
    torch.testing.assert_close(
        model.logits(params, x), module.eval()(x), rtol=1e-4, atol=1e-5
    )  # float32, sums of up to 3,136 terms in another order


@pytest.mark.parametrize(("settings", "feature_shape", "num_classes", "module"), SAME_MODELS)
def test_initial_params_follow_the_distribution_of_pytorch(
    settings, feature_shape, num_classes, module
) -> None:
    model = make(settings, feature_shape, num_classes)
    ours = views(model.init(seed=3), model.shapes)
    for part, parameter in zip(ours, module.parameters(), strict=True):
        assert part.shape == parameter.shape
    for weight, bias in zip(ours[::2], ours[1::2], strict=True):
        bound = 1 / math.sqrt(weight[0].numel())
        assert 0.5 * bound < weight.abs().max() <= bound
        assert bias.abs().max() <= bound
        # The variance of a uniform distribution; weights have hundreds of values and more.
        assert weight.var().item() == pytest.approx(bound**2 / 3, rel=0.2)


def test_initial_params_depend_on_the_seed_alone() -> None:
    model = make({"name": "mlp"}, (64,), 10)
    assert torch.equal(model.init(seed=5), model.init(seed=5))
    assert not torch.equal(model.init(seed=5), model.init(seed=6))


@pytest.mark.parametrize("name", ["conv2", "conv4"])
@pytest.mark.parametrize("feature_shape", [(1, 8, 8), (60,)])
def test_a_convolution_that_does_not_fit_the_data_is_refused(name, feature_shape) -> None:
    with pytest.raises(ConfigError, match=rf"`{name}` needs images.*`mlp` and `logistic`"):
        make({"name": name}, feature_shape, 10)


def test_the_smallest_images_are_accepted() -> None:
    assert make({"name": "conv4"}, (3, 16, 16), 10).logits
    with pytest.raises(ConfigError, match="at least 16 pixels"):
        make({"name": "conv4"}, (3, 15, 16), 10)


def test_an_unknown_model_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="unknown model `conv3`; did you mean `conv"):
        make({"name": "conv3"}, IMAGE, 10)
    with pytest.raises(ValidationError, match=r"a model is given by its `name`"):
        make("mlp", IMAGE, 10)


class Tanh(Hyperparameters):
    name: str = "tanh"
    hidden: int = 5


def tanh_module(hidden) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 3))


@pytest.fixture
def _tanh_registered() -> Iterator[None]:
    models.REGISTRY.add(
        models.ModelEntry(Tanh, lambda config, shape, classes: tanh_module(config.hidden))
    )
    yield
    del models.REGISTRY["tanh"]


@pytest.mark.usefixtures("_tanh_registered")
def test_a_users_module_becomes_a_model_by_name() -> None:
    model = make({"name": "tanh", "hidden": 4}, (6,), 3)
    params, x, module = model.init(seed=2), torch.randn(7, 6), tanh_module(4)
    vector_to_parameters(params, module.parameters())
    torch.testing.assert_close(model.logits(params, x), module(x))
    assert torch.equal(params, model.init(seed=2))
    assert not torch.equal(params, model.init(seed=3))


@pytest.mark.parametrize(
    ("settings", "feature_shape"),
    [
        ({"name": "mlp", "hidden": [7, 5]}, (6,)),
        ({"name": "conv2"}, (1, 12, 12)),
        ({"name": "resnet18", "width": 4}, (3, 8, 8)),
        ({"name": "transformer", "width": 8, "heads": 2}, (6,)),
    ],
)
def test_a_block_has_the_gradients_of_its_clients(settings, feature_shape) -> None:
    """On a GPU convolutional clients go through `vmap`; on a CPU nothing else uses it."""
    is_text = settings["name"] == "transformer"
    model = make(settings, feature_shape, 4, "int64" if is_text else "float32")
    rng = torch.Generator().manual_seed(0)
    x = (
        torch.randint(0, 4, (3, 5, *feature_shape), generator=rng)
        if is_text
        else torch.randn(3, 5, *feature_shape, generator=rng).double()
    )
    params = torch.stack([model.init(seed) for seed in range(3)]).double()
    masks = []
    if model.dropout:
        shapes = [(3, 5, *shape) for shape in model.dropout.shapes]
        masks = [torch.randint(0, 2, shape, generator=rng).double() for shape in shapes]
    weight = torch.tensor([[1 / 5] * 5, [1 / 3] * 3 + [0] * 2, [1] + [0] * 4]).double()
    batch = Batch(x, torch.randint(0, 4, (3, 5), generator=rng), weight, masks)

    def gradient(clients) -> Tensor:
        target = torch.zeros_like(params[clients])
        some = Batch(*(field[clients] for field in batch[:3]), [mask[clients] for mask in masks])
        model.add_gradient(
            views(target, model.shapes), views(params[clients], model.shapes), some,
            keep=0.0, scale=1.0,
        )  # fmt: skip
        return target

    one_by_one = torch.cat([gradient(slice(client, client + 1)) for client in range(3)])
    torch.testing.assert_close(gradient(slice(0, 3)), one_by_one, rtol=1e-4, atol=1e-6)
    assert one_by_one.norm(dim=1).min() > 0


def test_an_example_keeps_the_inputs_of_layers_for_the_backward_pass() -> None:
    model = models.from_module(lambda: tanh_module(5), (6,), 3)
    assert model.activations == 6 + 5 + 5  # of the first layer, of tanh, of the second layer


@pytest.mark.parametrize("padding", [0, 2])
def test_convolutions_as_products_are_those_of_the_library(padding) -> None:
    torch.manual_seed(0)
    clients = [torch.rand(3, 2, 9, 8), torch.rand(5, 2, 3, 3), torch.rand(5)]
    by_library, by_products = (
        gradients_of(convolve, clients, padding)
        for convolve in (convolutional.convolve_by_library, convolutional.convolve_by_products)
    )
    for one, other in zip(by_products, by_library, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("form", "channels", "kernel", "by_products"),
    [
        ("auto", 1, 3, True),
        ("auto", 3, 3, True),
        ("auto", 1, 5, True),
        ("auto", 3, 5, False),
        ("auto", 32, 3, False),
        ("grouped", 1, 3, False),
        ("products", 32, 3, True),
    ],
)
def test_convolutions_of_a_block_are_products_where_columns_are_no_larger_than_results(
    form, channels, kernel, by_products, monkeypatch
) -> None:
    monkeypatch.setenv(environment.CONVOLUTIONS, form)
    monkeypatch.setattr(convolutional, "convolve_by_products", lambda *_: "products")
    for where, expected in {"meta": by_products, "cpu": False}.items():
        x = torch.empty(2, channels, 9, 9, device=where)
        weight = torch.empty(32, channels, kernel, kernel, device=where)
        result = convolutional.convolve_in_block(x, weight, torch.empty(32, device=where), 0)
        assert (result == "products") == expected, where


def gradients_of(convolve, tensors, padding) -> tuple[Tensor, ...]:
    """Of a block of two clients: the result, and the gradients of its squares."""

    def loss(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        result = convolve(*tensors, padding)
        return result.square().sum(), result

    block = [torch.stack([tensor, 2 * tensor]) for tensor in tensors]
    gradients, result = torch.func.vmap(torch.func.grad(loss, (0, 1, 2), has_aux=True))(*block)
    return *gradients, result
