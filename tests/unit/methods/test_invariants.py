"""What the server keeps stays the mean of what all clients keep, whoever takes part."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedcome_ray.methods import REGISTRY
from tests.unit.methods.quadratics import Quadratics

RNG = torch.Generator().manual_seed(11)
CURVATURE = torch.rand(6, 4, generator=RNG, dtype=torch.float64) + 0.5
MINIMUM = torch.randn(6, 4, generator=RNG, dtype=torch.float64)
START = torch.randn(4, generator=RNG, dtype=torch.float64)
COHORTS = [(0, 3), (1, 2, 5), (3,), (0, 1, 2, 3, 4, 5), (2, 5)]


def federation(name: str, **settings: Any) -> Quadratics:
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    return Quadratics(build(config(**settings)), CURVATURE, MINIMUM, START, num_steps=(1, 2, 3) * 2)


@pytest.mark.parametrize(
    ("name", "kept_by_server", "kept_by_clients"),
    [
        ("scaffold", "control", "control"),
        ("feddyn", "correction", "gradient"),
        ("feddc", "gradient", "gradient"),
        ("feddc", "drift", "drift"),
    ],
)
def test_the_server_keeps_the_mean_of_all_clients(
    name: str, kept_by_server: str, kept_by_clients: str
) -> None:
    problem = federation(name)
    for cohort in COHORTS:
        problem.round(cohort)
        expected = problem.states(kept_by_clients).mean(0)
        torch.testing.assert_close(getattr(problem.server, kept_by_server), expected)
        assert expected.norm() > 1e-3


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc"])
def test_clients_that_do_not_take_part_keep_their_state(name: str) -> None:
    problem = federation(name)
    problem.round()
    before = list(problem.clients)
    problem.round((1, 4))
    assert [problem.clients[c] is before[c] for c in range(6)] == [True, False, True] * 2


def test_the_control_of_a_client_is_the_mean_gradient_on_its_path() -> None:
    problem = federation("scaffold")
    problem.round()
    received = problem.method.broadcast(problem.server)
    client, params, path = problem.clients[2], received.params, []
    for _ in range(3):
        path.append(problem.gradient(params)[2])
        params = params - problem.lr * problem.method.correct(path[-1], params, received, client)
    problem.round((2,))
    torch.testing.assert_close(problem.clients[2].control, torch.stack(path).mean(0))


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("feddyn", lambda problem: -problem.states("gradient").mean(0) / 0.3),
        ("feddc", lambda problem: problem.states("drift").mean(0)),
    ],
)
def test_the_params_are_the_cohorts_mean_plus_the_mean_drift_of_all(name: str, drift: Any) -> None:
    problem = federation(name, alpha=0.3)
    for cohort in COHORTS:
        received: Tensor = problem.server.params
        mean = received + problem.round(cohort).update.mean(0)
        torch.testing.assert_close(problem.server.params - mean, drift(problem))


@pytest.mark.parametrize(
    ("name", "knowledge"), [("scaffold", "control"), ("feddyn", "gradient"), ("feddc", "gradient")]
)
def test_who_knows_the_gradients_at_the_optimum_rests_there(name: str, knowledge: str) -> None:
    problem = federation(name)
    optimum = problem.optimum
    problem.server = problem.server._replace(params=optimum)
    problem.clients = [
        client._replace(**{knowledge: gradient})
        for client, gradient in zip(problem.clients, problem.gradient(optimum), strict=True)
    ]
    for cohort in COHORTS:
        problem.round(cohort)
    torch.testing.assert_close(problem.server.params, optimum, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fednova"])
def test_averaging_leaves_the_optimum(name: str) -> None:
    problem = federation(name)
    problem.server = problem.server._replace(params=problem.optimum)
    problem.round()
    assert (problem.server.params - problem.optimum).norm() > 1e-3


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc"])
def test_the_optimum_is_found_with_partial_participation(name: str) -> None:
    settings = {"scaffold": {}, "feddyn": {"alpha": 1.0}, "feddc": {"alpha": 0.1}}
    problem = federation(name, **settings[name])
    for round_index in range(600):
        problem.round(
            tuple(sorted({round_index % 6, (round_index + 2) % 6, (round_index + 3) % 6}))
        )
    torch.testing.assert_close(problem.server.params, problem.optimum, rtol=0, atol=1e-6)
