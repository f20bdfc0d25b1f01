import math

import pytest
import torch
from torch import Tensor

from fedcome_ray.methods import fedfv
from fedcome_ray.methods.fedfv import FedFV, ServerState
from tests.unit.methods.quadratics import column, report_of


def vectors(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def run(hp: FedFV, *rounds: tuple[tuple[int, ...], Tensor]) -> list[ServerState]:
    """The server's states after rounds of (cohort, updates) from the origin."""
    method = fedfv.build(hp)
    states = [method.init_server(torch.zeros_like(rounds[0][1][0]), 9)]
    for cohort, updates in rounds:
        reports = report_of(updates, loss=column(*range(len(cohort))))
        states.append(method.aggregate(states[-1], cohort, reports)[0])
    return states[1:]


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (10, (1, 2, 3, 5, 6)),
        (20, (2, 4, 7, 10, 13)),
        (40, (4, 8, 13, 20, 26)),
        (100, (10, 20, 33, 50, 66)),
        (196, (20, 40, 65, 98, 130)),
    ],
)
def test_the_clients_with_the_largest_losses_keep_their_updates(
    size: int, kept: tuple[int, ...]
) -> None:
    everybody_conflicts = torch.full((size, size), -1 / size, dtype=torch.float64)
    everybody_conflicts.fill_diagonal_(1.0)
    loss = torch.arange(size, 0, -1.0)
    for alpha, count in zip((0.1, 0.2, 1 / 3, 0.5, 2 / 3), kept, strict=True):
        mixing = fedfv.mitigate_internal(everybody_conflicts, loss, alpha)
        unchanged = (mixing == torch.eye(size)).all(-1)
        assert unchanged.tolist() == [True] * count + [False] * (size - count)


def test_with_alpha_zero_nobody_keeps_an_update() -> None:
    mixing = fedfv.mitigate_internal(vectors((1, -0.5), (-0.5, 1)), torch.ones(2), 0.0)
    torch.testing.assert_close(mixing, vectors((1, 0.5), (0.5, 1)))


def test_an_update_is_not_projected_on_itself() -> None:
    """Projections on two others may turn an update so far that it conflicts with its raw form."""
    updates = vectors((1, 0), (-math.sqrt(3) / 2, 1 / 2), (-math.sqrt(3) / 2, -1 / 2))
    mixing = fedfv.mitigate_internal(updates @ updates.T, torch.tensor([3.0, 1.0, 2.0]), 0.0)
    torch.testing.assert_close(mixing[:1] @ updates, vectors((-1 / 8, math.sqrt(3) / 8)))


def test_opposite_updates_leave_the_params_where_they_are() -> None:
    (state,) = run(FedFV(alpha=0, tau=1), ((0, 1), vectors((3, 4), (-1.5, -2))))
    assert torch.equal(state.params, torch.zeros(2, dtype=torch.float64))


def test_the_step_is_as_long_as_the_plain_mean() -> None:
    updates = vectors((1, 0.5, 0), (-1, 0.2, 0.3), (0.1, -1, 1))
    (state,) = run(FedFV(), ((0, 4, 7), updates))
    torch.testing.assert_close(state.params.norm(), updates.mean(0).norm())


def test_past_rounds_do_not_matter_when_everybody_takes_part() -> None:
    rounds = [((0, 1), vectors((1, 0), (-1, 2))), ((0, 1), vectors((-1, -1), (0.5, -2)))]
    with_memory = run(FedFV(tau=3, window="past_only"), *rounds)
    without = run(FedFV(tau=0), *rounds)
    assert torch.equal(with_memory[-1].params, without[-1].params)


def test_the_current_round_is_freed_from_conflicts_that_projections_left() -> None:
    updates = vectors((1, 0), (-3, 1))  # the second keeps its update and outweighs the first
    (past,) = run(FedFV(alpha=0.5, tau=1, window="past_only"), ((0, 1), updates))
    (current,) = run(FedFV(alpha=0.5, tau=1), ((0, 1), updates))
    assert past.params @ updates[0] < -0.5
    assert current.params @ updates[0] == pytest.approx(0, abs=1e-12)


def test_the_external_projection_waits_until_the_window_can_be_full() -> None:
    first, second = ((0,), vectors((1, 0))), ((1,), vectors((-1, 1)))
    waiting = run(FedFV(tau=2, window="past_only"), first, second)
    running = run(FedFV(tau=1, window="past_only"), first, second)
    torch.testing.assert_close(waiting[1].params - waiting[0].params, second[1][0])
    assert (running[1].params - running[0].params)[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("window", "tau", "remembered"),
    [
        ("include_current", 0, []),
        ("include_current", 1, []),
        ("include_current", 2, [4, 7]),
        ("include_current", 3, [1, 4, 7]),
        ("past_only", 0, []),
        ("past_only", 1, [4, 7]),
        ("past_only", 2, [1, 4, 7]),
        ("past_only", 5, [0, 1, 4, 7]),
    ],
)
def test_only_updates_that_a_later_round_can_use_are_kept(
    window: str, tau: int, remembered: list[int]
) -> None:
    rounds = [((0, 7), vectors((1, 0), (1, 1))), ((1, 4), vectors((1, 0), (1, 1)))]
    last = ((4, 7), vectors((5, 0), (6, 0)))
    memory = run(FedFV(tau=tau, window=window), *rounds, last)[-1].memory  # type: ignore[arg-type]
    assert sorted(memory.clients.tolist()) == remembered
    kept = dict(zip(memory.clients.tolist(), memory.updates[:, 0].tolist(), strict=True))
    assert kept == {client: {0: 1, 1: 1, 4: 5, 7: 6}[client] for client in remembered}
