"""Facts about methods that hold whatever clients report."""

import math
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcome_ray.methods import REGISTRY, fedfv
from fedcome_ray.methods.fedmgda_plus import min_norm_weights
from fedcome_ray.methods.method import Report

NUM_CLIENTS, DIM = 6, 5
COHORT = st.sets(st.integers(0, NUM_CLIENTS - 1), min_size=1).map(lambda ids: tuple(sorted(ids)))
SEED = st.integers(0, 2**32 - 1)
untimed = settings(deadline=None)  # machines that run tests are shared


def build(name: str, **settings: Any) -> Any:
    entry = REGISTRY[name]
    config, build = entry.config, entry.build
    return build(config(**settings))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def reports_of(update: Tensor, loss: Tensor | None = None) -> Report:
    """Clients that differ in the length of their path and in their number of examples."""
    rows = torch.arange(1, len(update) + 1, dtype=update.dtype).unsqueeze(-1)
    return Report(update, rows if loss is None else loss, total_lr=rows / 7, num_examples=rows)


@untimed
@given(st.lists(COHORT, min_size=1, max_size=5), SEED)
def test_server_states_are_means_of_client_states(
    cohorts: list[tuple[int, ...]], seed: int
) -> None:
    mirrored = {
        "scaffold": [("control", "control")],
        "feddyn": [("correction", "gradient")],
        "feddc": [("gradient", "gradient"), ("drift", "drift")],
    }
    for name, fields in mirrored.items():
        method = build(name)
        server = method.init_server(normal(seed, DIM), NUM_CLIENTS)
        fresh = method.init_client(torch.zeros(NUM_CLIENTS, DIM, dtype=torch.float64))
        clients = fresh
        for number, cohort in enumerate(cohorts):
            reports = reports_of(normal(seed + number, len(cohort), DIM))
            chosen = type(fresh)(*(field[list(cohort)] for field in clients))
            carried = method.carry(method.broadcast(server), chosen, reports)
            clients = type(fresh)(
                *(
                    field.index_copy(0, torch.tensor(cohort), new)
                    for field, new in zip(clients, carried, strict=True)
                )
            )
            server, _ = method.aggregate(server, cohort, reports)
        for kept_by_server, kept_by_clients in fields:
            expected = getattr(clients, kept_by_clients).mean(0)
            torch.testing.assert_close(getattr(server, kept_by_server), expected)


@untimed
@given(SEED, COHORT)
def test_a_federation_that_has_found_the_optimum_stays(seed: int, cohort: tuple[int, ...]) -> None:
    optimum, gradients = normal(seed, DIM), normal(seed + 1, NUM_CLIENTS, DIM)
    gradients -= gradients.mean(0)  # they cancel at the optimum
    drifts = normal(seed + 2, NUM_CLIENTS, DIM)
    drifts -= drifts.mean(0)
    knowledge = {
        "scaffold": {"control": gradients},
        "feddyn": {"gradient": gradients},
        "feddc": {"gradient": gradients + 0.1 * drifts, "drift": drifts},
    }
    chosen = list(cohort)
    for name, fields in knowledge.items():
        method = build(name, **({"alpha": 0.1} if name == "feddc" else {}))
        server = method.init_server(optimum, NUM_CLIENTS)
        received = method.broadcast(server)
        clients = method.init_client(gradients[chosen])
        clients = clients._replace(**{key: value[chosen] for key, value in fields.items()})
        grad = method.correct(gradients[chosen], optimum, received, clients)
        torch.testing.assert_close(grad, torch.zeros_like(grad), rtol=0, atol=1e-12)
        reports = reports_of(torch.zeros_like(grad))
        for before, after in zip(clients, method.carry(received, clients, reports), strict=True):
            assert torch.equal(before, after)
        assert torch.equal(method.aggregate(server, cohort, reports)[0].params, optimum)


@untimed
@given(SEED, st.integers(1, 7), st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 2 / 3, 1.0]))
def test_fedfv_projects_one_by_one_what_it_projects_at_once(
    seed: int, size: int, alpha: float
) -> None:
    updates, loss = normal(seed, size, DIM), normal(seed + 1, size)
    order = sorted(range(size), key=lambda client: loss[client].item())
    kept = order[math.ceil((size - 1) * (1 - alpha)) :] if alpha > 0 else []
    expected = updates.clone()
    for client in set(range(size)) - set(kept):
        for other in order:
            product = expected[client] @ updates[other]
            if other != client and product < 0:
                expected[client] -= product / (updates[other] @ updates[other]) * updates[other]
    projected = fedfv.mitigate_internal(updates @ updates.T, loss, alpha) @ updates
    torch.testing.assert_close(projected, expected, rtol=1e-9, atol=1e-9)


@untimed
@given(SEED, st.integers(1, 9), st.floats(0, 1))
def test_no_exchange_of_weight_shortens_the_minimum_norm_point(
    seed: int, size: int, epsilon: float
) -> None:
    """The optimality conditions: who could still take weight is no better than who could give."""
    vectors = normal(seed, size, DIM).numpy()
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    centre = np.random.default_rng(seed).dirichlet(np.ones(size))
    weights = min_norm_weights(vectors @ vectors.T, centre, epsilon)
    slope = vectors @ (weights @ vectors)
    can_give = weights > np.maximum(0, centre - epsilon) + 1e-9
    can_take = weights < np.minimum(1, centre + epsilon) - 1e-9
    assert abs(weights.sum() - 1) < 1e-12
    for giver in np.flatnonzero(can_give):
        assert (slope[giver] - slope[can_take] < 1e-8).all()


@untimed
@given(SEED, st.floats(0, 5))
def test_qffl_never_steps_further_than_the_longest_update(seed: int, q: float) -> None:
    updates, loss = normal(seed, 5, DIM), normal(seed + 1, 5, 1).abs()
    method = build("qffl", q=q)
    server = method.init_server(torch.zeros(DIM, dtype=torch.float64), 5)
    server, _ = method.aggregate(server, (0, 1, 2, 3, 4), reports_of(updates, loss))
    assert server.params.norm() <= updates.norm(dim=-1).max() * (1 + 1e-12)
