"""What every method promises. Run over the registry, so that a new one is tested by existing."""

import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from fedcome_ray import methods
from fedcome_ray.methods.method import AnyMethod, Report
from tests.unit.methods.quadratics import Quadratics

DIM, NUM_CLIENTS = 7, 9
COHORT = (1, 2, 4, 5, 8)


@pytest.fixture(params=sorted(methods.REGISTRY))
def method(request: pytest.FixtureRequest) -> AnyMethod:
    entry = methods.REGISTRY[request.param]
    config, build = entry.config, entry.build
    return build(config())


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def some_reports(rng: torch.Generator, dtype: torch.dtype = torch.float64) -> Report:
    """Reports with many conflicts, and nothing equal between clients."""
    size = len(COHORT)
    return Report(
        update=normal(rng, size, DIM).to(dtype),
        loss=torch.rand(size, 1, generator=rng, dtype=torch.float64).to(dtype) + 0.5,
        total_lr=torch.arange(1, size + 1).unsqueeze(-1).to(dtype) / 10,
        num_examples=torch.tensor([[10], [3], [7], [20], [1]]).to(dtype),
    )


def a_server(method: AnyMethod, rng: torch.Generator, dtype: torch.dtype = torch.float64) -> Any:
    """The state of a server after a first round, in which nothing is zero any more."""
    server = method.init_server(normal(rng, DIM).to(dtype), NUM_CLIENTS)
    return method.aggregate(server, (0, 1, 2, 3, 6), some_reports(rng, dtype))[0]


def leaves(state: Any) -> Iterator[Any]:
    for item in state:
        if isinstance(item, tuple):
            yield from leaves(item)
        else:
            yield item


def structure(state: Any) -> Any:
    """Names and kinds of all parts, without their sizes and values."""
    if isinstance(state, tuple):
        return type(state), [structure(item) for item in state]
    return (state.dtype, state.ndim) if isinstance(state, Tensor | np.ndarray) else type(state)


def copies(*states: Any) -> list[Any]:
    return [
        leaf.clone() if isinstance(leaf, Tensor) else leaf for s in states for leaf in leaves(s)
    ]


def fields_of(report: Report) -> tuple[Tensor, ...]:
    return report.update, report.loss, report.total_lr, report.num_examples


def assert_same(first: Any, second: Any, **tolerance: float) -> None:
    for one, other in zip(leaves(first), leaves(second), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


def test_a_block_of_clients_gives_what_clients_give_one_by_one(
    method: AnyMethod, rng: torch.Generator
) -> None:
    received = method.broadcast(a_server(method, rng))
    grad, params, reports = normal(rng, 5, DIM), normal(rng, 5, DIM), some_reports(rng)
    fresh = method.init_client(params[0])
    block = type(fresh)(*(normal(rng, 5, DIM) for _ in fresh))

    starts = received.params if method.start is None else method.start(received.params, block)
    corrected = method.correct(grad, params, received, block)
    carried = method.carry(received, block, reports)

    for row in range(5):
        client = type(block)(*(field[row] for field in block))
        report = Report(*(field[row] for field in fields_of(reports)))
        alone = method.correct(grad[row], params[row], received, client)
        torch.testing.assert_close(corrected[row], alone, rtol=0, atol=0)
        if method.start is not None:
            assert torch.equal(starts[row], method.start(received.params, client))
        assert_same([field[row] for field in carried], method.carry(received, client, report))


def test_the_order_of_the_cohort_does_not_matter(
    method: AnyMethod, rng: torch.Generator, request: pytest.FixtureRequest
) -> None:
    # The general solver behind CAGrad stops at an accuracy of 1e-8; all others are exact.
    tolerance = 1e-6 if request.node.callspec.params["method"] == "cagrad" else 1e-12
    server, reports, order = a_server(method, rng), some_reports(rng), [3, 0, 4, 2, 1]
    shuffled = Report(*(field[order] for field in fields_of(reports)))
    first, _ = method.aggregate(server, COHORT, reports)
    second, _ = method.aggregate(server, tuple(COHORT[index] for index in order), shuffled)
    assert_same(method.broadcast(first), method.broadcast(second), rtol=tolerance, atol=tolerance)


def test_nothing_that_is_given_is_changed(method: AnyMethod, rng: torch.Generator) -> None:
    server, reports = a_server(method, rng), some_reports(rng)
    received = method.broadcast(server)
    grad, params = normal(rng, 5, DIM), normal(rng, 5, DIM)
    client = type(method.init_client(params))(*(params + 1 for _ in method.init_client(params)))
    given = (server, received, client, fields_of(reports), (grad, params))
    before = copies(*given)

    method.correct(grad, params, received, client)
    method.carry(received, client, reports)
    method.aggregate(server, COHORT, reports)

    assert_same(before, copies(*given), rtol=0, atol=0)


def test_a_new_client_does_not_depend_on_the_values_it_is_modelled_on(
    method: AnyMethod, rng: torch.Generator
) -> None:
    assert_same(method.init_client(normal(rng, DIM)), method.init_client(normal(rng, DIM)))


def test_client_states_are_flat_tuples_of_vectors(method: AnyMethod, rng: torch.Generator) -> None:
    like = normal(rng, DIM)
    state = method.init_client(like)
    assert all(field.shape == like.shape and field.dtype == like.dtype for field in state)
    received = method.broadcast(a_server(method, rng))
    report = Report(*(field[0] for field in fields_of(some_reports(rng))))
    assert structure(method.carry(received, state, report)) == structure(state)


def test_a_server_state_can_be_saved_leaf_by_leaf(method: AnyMethod, rng: torch.Generator) -> None:
    fresh = method.init_server(normal(rng, DIM), NUM_CLIENTS)
    later = a_server(method, rng)
    assert structure(fresh) == structure(later)
    assert all(isinstance(leaf, Tensor | np.ndarray | int | float) for leaf in leaves(later))
    for state in (fresh, later):  # safetensors refuses leaves that share their memory
        tensors = {str(i): leaf for i, leaf in enumerate(leaves(state)) if isinstance(leaf, Tensor)}
        for name, restored in load(save(tensors)).items():
            assert torch.equal(restored, tensors[name])


def test_states_travel_between_processes(method: AnyMethod, rng: torch.Generator) -> None:
    server = a_server(method, rng)
    for state in (server, method.broadcast(server), method.init_client(normal(rng, DIM))):
        restored = pickle.loads(pickle.dumps(state))
        assert structure(restored) == structure(state)
        assert_same(restored, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_type_of_the_params(
    method: AnyMethod, rng: torch.Generator, dtype: torch.dtype
) -> None:
    server = a_server(method, rng, dtype)
    vectors = [leaf for leaf in leaves(server) if isinstance(leaf, Tensor) and leaf.ndim]
    assert all(leaf.dtype in {dtype, torch.int64} for leaf in vectors)
    received, params = method.broadcast(server), normal(rng, DIM).to(dtype)
    assert method.correct(params, params, received, method.init_client(params)).dtype == dtype


def test_clients_start_from_the_params_that_are_evaluated(
    method: AnyMethod, rng: torch.Generator
) -> None:
    server = a_server(method, rng)
    assert method.broadcast(server).params is server.params


def test_losses_are_used_by_those_methods_that_ask_for_them(
    method: AnyMethod, rng: torch.Generator
) -> None:
    server, reports = a_server(method, rng), some_reports(rng)
    unknown = Report(
        reports.update, reports.loss * math.nan, reports.total_lr, reports.num_examples
    )
    first, _ = method.aggregate(server, COHORT, reports)
    second, _ = method.aggregate(server, COHORT, unknown)
    assert torch.equal(first.params, second.params) != method.uses_loss


def test_what_is_told_about_a_round_is_finite_numbers(
    method: AnyMethod, rng: torch.Generator
) -> None:
    _, info = method.aggregate(a_server(method, rng), COHORT, some_reports(rng))
    assert all(math.isfinite(value) for value in info.values()), info


def test_a_cohort_of_one_client_is_a_cohort(method: AnyMethod, rng: torch.Generator) -> None:
    one = Report(*(field[:1] for field in fields_of(some_reports(rng))))
    server, _ = method.aggregate(a_server(method, rng), (3,), one)
    assert torch.isfinite(server.params).all()


def test_clients_that_did_not_move_leave_finite_params(
    method: AnyMethod, rng: torch.Generator
) -> None:
    reports = some_reports(rng)
    still = Report(
        torch.zeros_like(reports.update), reports.loss, reports.total_lr, reports.num_examples
    )
    server, _ = method.aggregate(a_server(method, rng), COHORT, still)
    assert torch.isfinite(server.params).all()


def test_learning_lowers_the_mean_risk(method: AnyMethod, rng: torch.Generator) -> None:
    if method.start is not None:
        pytest.skip("the server's params are nobody's")
    curvature, minimum = normal(rng, NUM_CLIENTS, DIM).abs() + 0.5, normal(rng, NUM_CLIENTS, DIM)
    start = torch.full((DIM,), 5.0, dtype=torch.float64)
    problem = Quadratics(method, curvature, minimum, start)
    for round_index in range(20):
        problem.round(tuple(sorted({round_index % 9, (round_index + 4) % 9, 7, 8})))
    assert problem.risk(problem.server.params).mean() < problem.risk(start).mean()


def test_the_registry_lists_every_file_of_the_folder() -> None:
    folder = Path(methods.__file__).parent
    machinery = {"__init__", "method", "parts", "torchjd_weights", "weighting"}
    assert {path.stem for path in folder.glob("*.py")} - machinery == set(methods.REGISTRY)


def test_methods_are_registered_by_their_own_name() -> None:
    for name, entry in methods.REGISTRY.items():
        assert entry.config().name == name  # type: ignore[attr-defined]
        assert entry.config.__module__ == entry.build.__module__ == f"fedcome_ray.methods.{name}"


def test_every_method_says_where_it_was_published() -> None:
    for name in set(methods.REGISTRY) - set(methods.REFERENCES):
        entry = methods.REGISTRY[name]
        text = sys.modules[entry.build.__module__].__doc__
        published = r"https://arxiv.org/abs/\d{4}\.\d{5}|https://doi.org/10\.|Algorithm 2"
        assert re.search(published, text or "")


def test_the_papers_seven_are_told_apart_from_the_others() -> None:
    others = {"fednova", "fedadam", "fedyogi", "qffl", "fedmgda_plus", "fedgh", "fedmdfg"}
    of_many_tasks = {"dualproj", "pcgrad", "mgda", "cagrad", "imtl_g", "nash_mtl", "fairgrad"}
    of_many_tasks |= {"aligned_mtl", "con_fig"}
    assert len(methods.PAPER) == 7
    assert set(methods.REGISTRY) == {*methods.PAPER, *others, *of_many_tasks, *methods.REFERENCES}


def test_defaults_lie_in_the_papers_search_space() -> None:
    space = {
        ("fedprox", "mu"): {0.001, 0.01, 0.1},
        ("feddyn", "alpha"): {0.01, 0.1, 1},
        ("fedfv", "alpha"): {0, 0.1, 0.2, 1 / 3, 0.5, 2 / 3},
        ("fedfv", "tau"): {0, 1, 3, 10},
        ("feddc", "alpha"): {0.01, 0.1, 1},
    }
    for (name, setting), values in space.items():
        assert getattr(methods.REGISTRY[name].config(), setting) in values


def test_the_documentation_lists_every_method_with_its_settings() -> None:
    text = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    assert set(rows) - {"method.name"} == set(methods.REGISTRY)
    rows["fedyogi"] += rows["fedadam"]  # "as `fedadam`"
    for name, entry in methods.REGISTRY.items():
        for setting in set(entry.config.model_fields) - {"name"}:
            assert f"`{setting}`" in rows[name]
