"""Examples computed by hand, with exact fractions.

Two clients on a line, F_1(x) = (x - 2)^2 / 2 and F_2(x) = (x + 1)^2; their mean is least at 0.
Local training is two exact gradient steps of 0.1: all numbers can be checked with a pencil.
"""

import math

import pytest
import torch
from torch import Tensor

from fedcome_ray.methods import REGISTRY
from fedcome_ray.methods.fedfv import Memory
from tests.unit.methods.quadratics import Quadratics, column, report_of


def two_clients(name: str, start: float = 0.0, **settings: object) -> Quadratics:
    options = {key: settings.pop(key) for key in ("num_steps", "num_examples") if key in settings}
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    method = build(config(**settings))
    return Quadratics(
        method, column(1, 2), column(2, -1), torch.tensor([start], dtype=torch.float64), **options
    )


def exactly(*values: float) -> object:
    return pytest.approx(values, rel=1e-12, abs=1e-12)


def near(*values: float) -> object:
    return pytest.approx(values, abs=1e-9)


def numbers(*tensors: Tensor) -> tuple[float, ...]:
    return tuple(value for tensor in tensors for value in tensor.flatten().tolist())


def test_fedavg_averages_local_params() -> None:
    problem = two_clients("fedavg")
    assert numbers(problem.round().update) == exactly(0.38, -0.36)
    assert numbers(problem.server.params) == exactly(0.01)
    assert numbers(0.01 + problem.round().update) == exactly(0.3881, -0.3536)
    assert numbers(problem.server.params) == exactly(0.01725)
    problem.round()
    assert numbers(problem.server.params) == exactly(0.02250625)


def test_fedavg_comes_to_rest_beside_the_optimum() -> None:
    problem = two_clients("fedavg")
    for _ in range(120):
        problem.round()
    assert numbers(problem.server.params) == near(2 / 55)


def test_fedavg_weighs_by_examples() -> None:
    problem = two_clients("fedavg", num_examples=column(100, 300))
    problem.round()
    assert numbers(problem.server.params) == exactly(-0.175)


def test_fedavg_with_a_server_learning_rate_takes_a_longer_step() -> None:
    problem = two_clients("fedavg", server_lr=3)
    problem.round()
    assert numbers(problem.server.params) == exactly(0.03)


def test_fedprox_holds_clients_back() -> None:
    problem = two_clients("fedprox", mu=0.5)
    assert numbers(problem.round().update) == exactly(0.37, -0.35)
    assert numbers(problem.server.params) == exactly(0.01)
    assert numbers(0.01 + problem.round().update) == exactly(0.37815, -0.3435)
    assert numbers(problem.server.params) == exactly(0.017325)


def test_scaffold_learns_the_drift_in_one_round_and_corrects_it_in_the_next() -> None:
    problem = two_clients("scaffold")
    assert numbers(problem.round().update) == exactly(0.38, -0.36)
    assert numbers(problem.states("control")) == exactly(-1.9, 1.8)
    assert numbers(problem.server.params, problem.server.control) == exactly(0.01, -0.05)
    assert numbers(0.01 + problem.round().update) == exactly(0.0366, -0.0206)
    assert numbers(problem.states("control")) == exactly(-1.983, 2.003)
    assert numbers(problem.server.params, problem.server.control) == exactly(0.008, 0.01)


def test_scaffold_finds_the_optimum_and_the_gradients_there() -> None:
    problem = two_clients("scaffold")
    for _ in range(200):
        problem.round()
    assert numbers(problem.server.params, problem.server.control) == near(0, 0)
    assert numbers(problem.states("control")) == near(-2, 2)


def test_scaffold_with_a_server_learning_rate_takes_a_longer_step() -> None:
    problem = two_clients("scaffold", server_lr=2)
    problem.round()
    assert numbers(problem.server.params, problem.server.control) == exactly(0.02, -0.05)


def test_feddyn_adds_the_drift_of_all_clients_to_the_mean() -> None:
    problem = two_clients("feddyn", alpha=0.5)
    assert numbers(problem.round().update) == exactly(0.37, -0.35)
    assert numbers(problem.states("gradient")) == exactly(-0.5 * 0.37, 0.5 * 0.35)
    assert numbers(problem.server.params) == exactly(0.02)
    assert numbers(0.02 + problem.round().update) == exactly(0.352075, -0.306375)
    assert numbers(problem.states("gradient")) == exactly(-0.5 * 0.702075, 0.5 * 0.676375)
    assert numbers(problem.server.params) == exactly(0.0357)


def test_feddyn_finds_the_optimum_and_the_gradients_there() -> None:
    problem = two_clients("feddyn", alpha=0.5)
    for _ in range(600):
        problem.round()
    assert numbers(problem.server.params) == near(0)
    assert numbers(problem.states("gradient")) == near(-2, 2)


def test_feddc_tracks_drifts_and_gradients() -> None:
    problem = two_clients("feddc", alpha=0.5)
    assert numbers(problem.round().update) == exactly(0.37, -0.35)
    assert numbers(problem.states("drift")) == exactly(0.37, -0.35)
    assert numbers(problem.states("gradient")) == exactly(-1.85, 1.75)
    assert numbers(problem.server.params, problem.server.gradient) == exactly(0.02, -0.05)
    assert numbers(0.02 + problem.round().update) == exactly(0.019075, 0.008625)
    assert numbers(problem.states("drift")) == exactly(0.369075, -0.361375)
    assert numbers(problem.states("gradient")) == exactly(-1.795375, 1.856875)
    assert numbers(problem.server.params, problem.server.gradient) == exactly(0.0177, 0.03075)


def test_feddc_finds_the_optimum() -> None:
    problem = two_clients("feddc", alpha=0.5)
    for _ in range(600):
        problem.round()
    assert numbers(problem.server.params, problem.server.gradient) == near(0, 0)
    assert numbers(problem.states("drift")) == near(4 / 11, -4 / 11)
    assert numbers(problem.states("gradient")) == near(-20 / 11, 20 / 11)


@pytest.mark.parametrize("start", [0.0, 1.0, -0.5])
def test_fedcome_rests_where_one_client_would_lose(start: float) -> None:
    problem = two_clients("fedcome", start)
    problem.round()
    assert numbers(problem.server.params) == exactly(start)


def test_fedcome_moves_as_long_as_both_clients_gain() -> None:
    problem = two_clients("fedcome", start=3.0, num_steps=1)
    path = []
    for _ in range(5):
        problem.round()
        path += numbers(problem.server.params)
    assert tuple(path) == exactly(2.55, 2.1675, 1.842375, 1.842375, 1.842375)


def in_the_plane(name: str, lr: float = 0.1, num_steps: int = 1) -> Quadratics:
    """F_i(x) = |x - p_i|^2 / 2 with p_1 = (-1, 0) and p_2 = (1, -1), from the origin."""
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    minimum = torch.tensor([[-1, 0], [1, -1]], dtype=torch.float64)
    start = torch.zeros(2, dtype=torch.float64)
    return Quadratics(
        build(config()), torch.ones_like(minimum), minimum, start, lr=lr, num_steps=num_steps
    )


def test_fedcome_lowers_both_risks_where_fedavg_raises_one() -> None:
    fedcome, fedavg = in_the_plane("fedcome"), in_the_plane("fedavg")
    fedcome.round()
    fedavg.round()
    assert numbers(fedcome.server.params) == exactly(-0.025, -0.075)
    assert numbers(fedcome.risk(fedcome.server.params)) == exactly(0.478125, 0.953125)
    assert numbers(fedavg.server.params) == exactly(0, -0.05)
    assert numbers(fedavg.risk(fedavg.server.params)) == exactly(0.50125, 0.95125)


def test_fedcome_of_several_steps_is_the_one_step_form_on_a_longer_step() -> None:
    problem = in_the_plane("fedcome", num_steps=2)
    problem.round()
    assert numbers(problem.server.params) == exactly(-0.0475, -0.1425)


def test_fedcome_keeps_a_risk_level_at_the_critical_step_size() -> None:
    problem = in_the_plane("fedcome", lr=0.8)
    problem.round()
    assert numbers(problem.risk(problem.server.params))[0] == pytest.approx(0.5, abs=1e-12)


MUTUAL_CONFLICT = -torch.tensor([[1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
LOSSES = column(0.3, 0.1, 0.2)


@pytest.mark.parametrize(
    ("alpha", "mean"),
    [
        (0.0, (-14, -18, -16)),
        (0.1, (-7, -17, -17)),
        (1 / 3, (-7, -17, -17)),
        (0.5, (-8, -16, -10)),
        (2 / 3, (-8, -16, -10)),
    ],
)
def test_fedfv_projects_in_the_order_of_the_losses(alpha: float, mean: tuple[int, ...]) -> None:
    entry = REGISTRY["fedfv"]
    config, build = entry.config, entry.build
    method = build(config(alpha=alpha, tau=0))
    server = method.init_server(torch.zeros(3, dtype=torch.float64), 3)
    server, _ = method.aggregate(server, (0, 1, 2), report_of(MUTUAL_CONFLICT, loss=LOSSES))
    scale = 1 / math.sqrt(3) / math.hypot(*mean)  # to the length of the plain mean
    assert numbers(-server.params) == exactly(*(scale * value for value in mean))


def test_fedfv_frees_the_mean_from_conflicts_with_a_remembered_client() -> None:
    entry = REGISTRY["fedfv"]
    config, build = entry.config, entry.build
    method = build(config(alpha=0, tau=1, window="past_only"))
    server = method.init_server(torch.zeros(2, dtype=torch.float64), 3)
    memory = Memory(
        clients=torch.tensor([2]),
        rounds=torch.tensor([4]),
        updates=-torch.tensor([[-1, 1]], dtype=torch.float64),
    )
    server = server._replace(round_index=5, memory=memory)
    updates = -torch.tensor([[1, 0], [1, 0]], dtype=torch.float64)
    server, _ = method.aggregate(server, (0, 1), report_of(updates, loss=column(1, 2)))
    assert numbers(-server.params) == exactly(math.sqrt(0.5), math.sqrt(0.5))
