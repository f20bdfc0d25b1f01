"""The family of conflict-aware methods against TorchJD, an independent library of them."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchjd import aggregation
from torchjd.linalg import QuadprogProjector

from fedcome_ray import methods
from fedcome_ray.consensus import agree
from fedcome_ray.errors import UserError
from fedcome_ray.methods import torchjd_weights
from fedcome_ray.methods.fairgrad import fair_weights
from fedcome_ray.methods.fedmdfg import fair_guidance
from fedcome_ray.methods.mgda import shortest
from fedcome_ray.methods.pcgrad import project, random_orders
from tests.unit.methods.quadratics import column, report_of

FAMILY = ("dualproj", "pcgrad", "mgda", "cagrad", "imtl_g", "nash_mtl", "fairgrad", "aligned_mtl")
FAMILY += ("con_fig", "fedgh")


def updates_of(seed: int, size: int = 8, dim: int = 30) -> Tensor:
    """Conflicting updates of unequal lengths that have a direction in common."""
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(size, dim)) + 0.3 * rng.normal(size=dim)
    return torch.from_numpy(updates * rng.uniform(0.2, 2.0, size=(size, 1)))


def move_of(name: str, updates: Tensor, num_examples: Tensor | None = None, **hp: Any) -> Tensor:
    entry = methods.REGISTRY[name]
    method = entry.build(entry.config(**hp))
    server = method.init_server(torch.zeros_like(updates[0]), len(updates))
    loss = torch.linspace(1, 2, len(updates), dtype=updates.dtype).unsqueeze(-1)
    reports = report_of(updates, loss=loss, num_examples=num_examples)
    return method.aggregate(server, tuple(range(len(updates))), reports)[0].params


@pytest.mark.parametrize("regularisation", [1e-4, 1e-8])  # theirs, and one that tells more
@pytest.mark.parametrize("dim", [5, 30])
@pytest.mark.parametrize("projected", ["updates", "mean"])
def test_the_consensus_is_upgrad_and_of_the_mean_dualproj(
    regularisation: float, dim: int, projected: Any
) -> None:
    """As near as their regularisation e allows.

    They minimise v'(G + e I)v over v >= u where we minimise v'Gv, G of trace 1. The minima d' and
    d of convex problems then satisfy |d' - d|^2 <= |d'|^2 - |d|^2 <= e |v|^2, with our v.
    """
    updates = updates_of(3, dim=dim)
    shares = torch.rand(8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares /= shares.sum()
    projector = QuadprogProjector(reg_eps=regularisation)
    theirs = {"updates": aggregation.UPGrad, "mean": aggregation.DualProj}[projected]
    expected = theirs(pref_vector=shares, projector=projector)(updates)
    ours = agree(updates, shares, projected=projected)
    rows = shares.unsqueeze(-1) * ours.mixing if projected == "updates" else ours.mixing
    tolerance = (regularisation * updates.square().sum()).sqrt() * rows.norm(dim=1).sum()
    assert (ours.direction - expected).norm() <= tolerance
    assert (updates @ (shares @ updates)).min() < 0, "the mean itself is without conflict"


def test_projecting_the_mean_is_shorter_than_projecting_everyone() -> None:
    """In the worst case of the mean, where updates nearly cancel, it goes hardly anywhere."""
    updates = torch.tensor([[1.0, 0.1], [-1.0, 0.1]], dtype=torch.float64)
    torch.testing.assert_close(move_of("dualproj", updates), updates.mean(0))
    assert move_of("fedcome", updates).norm() > move_of("dualproj", updates).norm()


@pytest.mark.parametrize("seed", range(4))
def test_mgda_is_at_least_as_short_as_theirs_and_optimal(seed: int) -> None:
    """Frank-Wolfe stops early; the optimum is where no update is nearer than the point itself."""
    updates = updates_of(seed)
    gram = (updates @ updates.T).numpy()
    weights = shortest(gram)
    theirs = aggregation.MGDAWeighting(epsilon=1e-6, max_iters=5000)(updates @ updates.T).numpy()
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    squared = weights @ gram @ weights
    assert (gram @ weights).min() >= squared * (1 - 1e-10)
    assert squared <= theirs @ gram @ theirs <= squared * 1.01


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_fair_weights_are_theirs_and_solve_the_equation(alpha: float, seed: int) -> None:
    updates = updates_of(seed)
    gram = updates @ updates.T
    gram /= gram.diagonal().mean()
    weights = fair_weights(gram.numpy(), alpha)
    theirs = aggregation.FairGradWeighting(alpha=alpha)(gram).numpy()
    np.testing.assert_allclose(weights, theirs / theirs.sum(), rtol=1e-4)
    equal = (gram.numpy() @ weights) * weights ** (1 / alpha)
    np.testing.assert_allclose(equal, equal.mean(), rtol=1e-10)


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem")
def test_a_bargain_is_theirs() -> None:
    pytest.importorskip("ecos", reason="their solver has no build for this Python")
    updates = updates_of(1)
    theirs = aggregation.NashMTL(n_tasks=8, max_norm=0.0, optim_niter=100)(updates)
    ours = move_of("nash_mtl", updates)
    torch.testing.assert_close(ours / ours.norm(), theirs / theirs.norm(), rtol=0, atol=1e-4)


def test_who_cannot_gain_together_does_not_move() -> None:
    updates = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    for name in ("nash_mtl", "fairgrad", "mgda", "dualproj"):
        assert move_of(name, updates).norm() < 1e-6, name


THEIRS: dict[str, Callable[[], Any]] = {
    "imtl_g": aggregation.IMTLG,
    "con_fig": aggregation.ConFIG,
    "aligned_mtl": aggregation.AlignedMTL,
    "cagrad": lambda: aggregation.CAGrad(c=0.5),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("dim", [5, 30])
def test_from_products_as_from_the_updates_themselves(name: str, dim: int) -> None:
    """Theirs get all updates; theirs of ConFIG is the sum over clients, ours the mean."""
    updates = updates_of(2, dim=dim)
    expected = THEIRS[name]()(updates) / (8 if name == "con_fig" else 1)
    torch.testing.assert_close(move_of(name, updates), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_two_clients_have_no_order_and_pcgrad_is_theirs(seed: int) -> None:
    updates = updates_of(seed, size=2, dim=3)
    expected = aggregation.PCGrad()(updates) / 2
    torch.testing.assert_close(move_of("pcgrad", updates), expected)
    torch.testing.assert_close(move_of("fedgh", updates), expected)


def test_pcgrad_projects_one_by_one_what_it_projects_at_once() -> None:
    updates = updates_of(3)
    orders = random_orders(0, 5, tuple(range(8)))
    expected = updates.clone()
    for own, order in enumerate(orders):
        for other in order:
            product = expected[own] @ updates[other]
            if other != own and product < 0:
                expected[own] -= product / (updates[other] @ updates[other]) * updates[other]
    mixing = torch.from_numpy(project((updates @ updates.T).numpy(), orders))
    torch.testing.assert_close(mixing @ updates, expected)


def test_every_order_of_the_others_is_as_likely() -> None:
    drawn = np.concatenate([random_orders(0, number, (1, 4, 7)) for number in range(2000)])
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_orders_follow_seed_round_and_client_and_nothing_else() -> None:
    cohort = (2, 3, 5, 7, 11, 13)
    first = np.array(cohort)[random_orders(0, 1, cohort)]
    assert (np.array(cohort)[random_orders(0, 1, cohort)] == first).all()
    assert (np.array(cohort)[random_orders(1, 1, cohort)] != first).any()
    assert (np.array(cohort)[random_orders(0, 2, cohort)] != first).any()
    fewer = np.array(cohort[:4])[random_orders(0, 1, cohort[:4])]
    for some, all_of_them in zip(fewer, first, strict=False):
        assert some.tolist() == [client for client in all_of_them if client in cohort[:4]]


def test_unequal_losses_call_for_the_larger_to_fall() -> None:
    """The guidance is the gradient of minus the cosine between losses and equal ones."""
    loss = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64, requires_grad=True)
    cosine = loss.sum() / loss.norm() / 3**0.5
    (gradient,) = torch.autograd.grad(-cosine, loss)
    guidance, angle = fair_guidance(loss.detach().numpy())
    np.testing.assert_allclose(guidance, gradient / gradient.norm(), rtol=1e-12)
    assert angle == pytest.approx(np.degrees(np.arccos(cosine.item())))
    assert fair_guidance(np.ones(3))[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", FAMILY)
def test_common_length_scale_and_server_rate(name: str) -> None:
    """Twice the updates or twice the rate is twice the move; matched, it is as long as the mean."""
    updates, sizes = updates_of(4), torch.arange(1, 9, dtype=torch.float64).unsqueeze(-1)
    move = move_of(name, updates, sizes)
    tolerance = {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(move_of(name, 2 * updates, sizes), 2 * move, **tolerance)
    tiny = move_of(name, 1e-5 * updates, sizes)
    torch.testing.assert_close(1e5 * tiny, move, **tolerance)
    torch.testing.assert_close(move_of(name, updates, sizes, server_lr=3), 3 * move, **tolerance)
    matched = move_of(name, updates, sizes, match_norm=True)
    mean = (sizes * updates).sum(0) / sizes.sum()
    assert matched.norm().item() == pytest.approx(mean.norm().item(), rel=1e-9)
    assert torch.cosine_similarity(matched, move, dim=0).item() == pytest.approx(1, abs=1e-7)


BY_EXAMPLES = {"dualproj", "pcgrad", "aligned_mtl", "con_fig", "fedgh"}


@pytest.mark.parametrize("name", FAMILY)
def test_who_counts_by_examples_is_as_documented(name: str) -> None:
    updates = updates_of(5)
    sizes = torch.arange(1, 9, dtype=torch.float64).unsqueeze(-1)
    by_examples, equally = move_of(name, updates, sizes), move_of(name, updates)
    assert torch.allclose(by_examples, equally, rtol=1e-9) != (name in BY_EXAMPLES)


@pytest.mark.parametrize("name", ["dualproj", "pcgrad", "fedgh"])
def test_agreeing_updates_are_averaged_by_examples(name: str) -> None:
    updates = torch.rand(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    move = move_of(name, updates, column(4, 1, 9, 2))
    torch.testing.assert_close(move, column(4, 1, 9, 2).squeeze() @ updates / 16)


@pytest.mark.parametrize("name", ["mgda", "nash_mtl", "fairgrad", "imtl_g", "con_fig", "dualproj"])
def test_nobody_is_opposed(name: str) -> None:
    for seed in range(5):
        updates = updates_of(seed)
        assert (updates @ move_of(name, updates) > -1e-9).all(), name


@pytest.mark.parametrize("name", ["cagrad", "imtl_g", "aligned_mtl"])
def test_a_missing_library_is_named_with_what_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchjd_weights, "NEEDED", ("torchjd", "no_such_package"))
    with pytest.raises(UserError, match=rf"`{name}` needs no_such_package.*fedcome-ray\[torchjd\]"):
        move_of(name, updates_of(0))


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; from fedcome_ray import methods\n"
        "methods.build(methods.REGISTRY['cagrad'].config())\n"
        "print('torchjd' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
