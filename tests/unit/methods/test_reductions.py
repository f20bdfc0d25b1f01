"""Special cases in which one method must do what another does."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedcome_ray.methods import REGISTRY
from fedcome_ray.methods.method import Report
from tests.unit.methods.quadratics import Quadratics, column, report_of

RNG = torch.Generator().manual_seed(5)
AGREEING = torch.rand(6, 8, generator=RNG, dtype=torch.float64)  # no negative product
CONFLICTING = torch.randn(6, 8, generator=RNG, dtype=torch.float64)
SIZES = column(4, 1, 9, 2, 2, 7)
COHORT = (0, 1, 2, 3, 4, 5)


def build(name: str, **settings: Any) -> Any:
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    return build(config(**settings))


def step(method: Any, updates: Tensor, sizes: Tensor | None = None) -> Tensor:
    """How far the params move in the first round."""
    server = method.init_server(torch.zeros_like(updates[0]), len(updates))
    losses = torch.rand(len(updates), 1, generator=RNG, dtype=torch.float64)
    reports = report_of(updates, loss=losses, num_examples=sizes)
    server, _ = method.aggregate(server, tuple(range(len(updates))), reports)
    return server.params


def weighted_mean(updates: Tensor, sizes: Tensor) -> Tensor:
    return (sizes * updates).sum(0) / sizes.sum()


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova", "fedcome"])
def test_agreeing_updates_are_averaged_by_examples(name: str) -> None:
    expected = weighted_mean(AGREEING, SIZES)
    torch.testing.assert_close(step(build(name), AGREEING, SIZES), expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scaffold", {}),
        ("fedfv", {"tau": 0}),
        ("fedfv", {"tau": 3}),
        ("qffl", {"q": 0}),
        ("fedcome", {"weights": "uniform"}),
    ],
)
def test_agreeing_updates_are_averaged_equally(name: str, settings: dict[str, Any]) -> None:
    torch.testing.assert_close(step(build(name, **settings), AGREEING, SIZES), AGREEING.mean(0))


@pytest.mark.parametrize(
    ("name", "settings"), [("fedfv", {"alpha": 1, "tau": 0}), ("qffl", {"q": 0})]
)
def test_without_fairness_the_fair_methods_average(name: str, settings: dict[str, Any]) -> None:
    moved = step(build(name, **settings), CONFLICTING, SIZES)
    torch.testing.assert_close(moved, CONFLICTING.mean(0))


def test_fedprox_without_a_spring_is_fedavg() -> None:
    paths = []
    for method in (build("fedprox", mu=0), build("fedavg")):
        problem = Quadratics(method, SIZES, column(*range(6)), torch.ones(1, dtype=torch.float64))
        for _ in range(3):
            problem.round((1, 3, 4))
        paths.append(problem.server.params)
    assert torch.equal(*paths)


def test_the_first_local_training_of_scaffold_is_that_of_fedavg() -> None:
    updates = []
    for name in ("scaffold", "fedavg"):
        start = torch.ones(1, dtype=torch.float64)
        updates.append(Quadratics(build(name), SIZES / 9, column(*range(6)), start).round().update)
    assert torch.equal(*updates)


def test_fedcome_and_fedfv_agree_on_two_clients_up_to_length() -> None:
    pair = torch.tensor([[1.0, 0.2], [-1.0, 0.5]], dtype=torch.float64)
    fair, agreed = step(build("fedfv", alpha=0, tau=0), pair), step(build("fedcome"), pair)
    torch.testing.assert_close(fair / fair.norm(), agreed / agreed.norm())


def test_fedcome_with_matched_norm_is_as_long_as_fedavg() -> None:
    matched = step(build("fedcome", match_norm=True), CONFLICTING, SIZES)
    free = step(build("fedcome"), CONFLICTING, SIZES)
    torch.testing.assert_close(matched.norm(), weighted_mean(CONFLICTING, SIZES).norm())
    torch.testing.assert_close(matched / matched.norm(), free / free.norm())


def test_fedcome_follows_no_update_of_a_cohort_backwards() -> None:
    assert (CONFLICTING @ step(build("fedcome"), CONFLICTING, SIZES) > 0).all()


def test_fednova_undoes_the_weight_of_longer_paths() -> None:
    """Directions count by examples, 1 to 3; the mean path is (1 + 3 * 3) / 4 long."""
    paths, sizes = column(1, 3), column(1, 3)
    reports = Report(torch.eye(2, dtype=torch.float64) * paths, paths, paths, sizes)
    method = build("fednova")
    server = method.init_server(torch.zeros(2, dtype=torch.float64), 2)
    server, _ = method.aggregate(server, (0, 1), reports)
    assert server.params.tolist() == pytest.approx([2.5 * 1 / 4, 2.5 * 3 / 4], rel=1e-12)


def test_fednova_finds_the_optimum_of_clients_that_differ_in_steps_only() -> None:
    """FedAvg rests where clients count by their steps; up to what the size of steps adds."""
    curvature, minimum = column(1, 1), column(0, 1)
    rests = {}
    for name in ("fednova", "fedavg"):
        problem = Quadratics(
            build(name),
            curvature,
            minimum,
            torch.zeros(1, dtype=torch.float64),
            lr=0.01,
            num_steps=(1, 4),
        )
        for _ in range(600):
            problem.round()
        rests[name] = problem.server.params.item()
    assert rests["fednova"] == pytest.approx(1 / 2, abs=0.01)
    assert rests["fedavg"] == pytest.approx(4 / 5, abs=0.01)


def test_the_first_step_of_adaptive_servers_is_in_closed_form() -> None:
    update = torch.tensor([[0.3, -0.001, 0.0]], dtype=torch.float64)
    settings = {"server_lr": 0.5, "beta1": 0.8, "beta2": 0.9, "tau": 0.01}
    variance = {
        "fedadam": 0.9 * 1e-4 + 0.1 * update[0] ** 2,
        # towards the square, by a tenth of it: up in the first coordinate, down in the others
        "fedyogi": 1e-4 + torch.tensor([0.1, -0.1, -0.1]) * update[0] ** 2,
    }
    for name, expected in variance.items():
        moved = step(build(name, **settings), update)
        torch.testing.assert_close(moved, 0.5 * 0.2 * update[0] / (expected.sqrt() + 0.01))


def test_qffl_follows_the_client_with_the_larger_loss() -> None:
    method = build("qffl", q=2.0, lipschitz=1.0)
    updates = torch.eye(2, dtype=torch.float64)
    server = method.init_server(torch.zeros(2, dtype=torch.float64), 2)
    server, _ = method.aggregate(server, (0, 1), report_of(updates, loss=column(1, 3)))
    # shares F^2 = (1, 9); sum of h = 2 F |u|^2 + F^2 = (2 + 1) + (6 + 9)
    torch.testing.assert_close(
        server.params, torch.tensor([1 / 18, 9 / 18], dtype=torch.float64), rtol=1e-8, atol=0
    )
