"""What a method adds to the local gradient is the gradient of the objective that it publishes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedcome_ray.methods import REGISTRY, feddc, feddyn, scaffold
from fedcome_ray.methods.method import Nothing, OnlyParams

RNG = torch.Generator().manual_seed(3)
X, C, S, C_I, G_I, S_I, H_I = torch.randn(7, 6, generator=RNG, dtype=torch.float64)


def squared(vector: Tensor) -> Tensor:
    return vector @ vector


# settings, what is received, what the client keeps, and the published addition to F_i(y)
PUBLISHED: dict[str, tuple[dict[str, float], Any, Any, Callable[[Tensor], Tensor]]] = {
    "fedprox": ({"mu": 0.3}, OnlyParams(X), Nothing(), lambda y: 0.3 / 2 * squared(y - X)),
    "scaffold": (
        {},
        scaffold.Received(params=X, control=C),
        scaffold.ClientState(control=C_I),
        lambda y: y @ (C - C_I),
    ),
    "feddyn": (
        {"alpha": 0.7},
        OnlyParams(X),
        feddyn.ClientState(gradient=G_I),
        lambda y: -(G_I @ y) + 0.7 / 2 * squared(y - X),
    ),
    "feddc": (
        {"alpha": 0.7},
        feddc.Received(params=X, gradient=S),
        feddc.ClientState(gradient=S_I, drift=H_I),
        lambda y: 0.7 / 2 * squared(y - (X - H_I)) + y @ (S - S_I),
    ),
}


def risk(y: Tensor) -> Tensor:
    return torch.logsumexp(3 * y, 0) + squared(y) / 5


@pytest.mark.parametrize("name", PUBLISHED)
def test_correction_is_the_gradient_of_the_published_objective(name: str) -> None:
    settings, received, client, addition = PUBLISHED[name]
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    y = torch.randn(6, generator=RNG, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(risk(y), y)
    (expected,) = torch.autograd.grad(risk(y) + addition(y), y)
    corrected = build(config(**settings)).correct(grad, y.detach(), received, client)
    torch.testing.assert_close(corrected, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - set(PUBLISHED)))
def test_other_methods_leave_the_local_gradient_alone(name: str) -> None:
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    grad = torch.randn(6, generator=RNG, dtype=torch.float64)
    torch.testing.assert_close(build(config()).correct(grad, X, OnlyParams(C), Nothing()), grad)
