"""Sums in double precision, against sums in a longer one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcome_ray.numerics import geometry
from tests.processes import answer_of

SIZES = st.tuples(
    st.integers(1, 11), st.sampled_from([1, 7, 8, 9, 255, 256, 257, 700, 2047, 2048, 2049, 5000])
)


def updates_of(size: tuple[int, int], seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** rng.integers(-6, 6, (size[0], 1))
    return torch.from_numpy((rng.normal(size=size) * lengths).astype(np.float32))


@given(size=SIZES, seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_inner_products_are_exact_to_rounding(size: tuple[int, int], seed: int) -> None:
    updates = updates_of(size, seed)
    exact = updates.numpy().astype(np.longdouble)
    norms = np.sqrt((exact**2).sum(axis=1))
    found = geometry.gram_matrix(updates).numpy()
    assert np.abs((found - exact @ exact.T) / np.outer(norms, norms)).max() < 1e-14
    assert np.array_equal(found, found.T)


@given(size=SIZES, seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_combinations_are_rounded_once(size: tuple[int, int], seed: int) -> None:
    updates = updates_of(size, seed)
    mixing = torch.from_numpy(np.random.default_rng(seed).normal(size=(3, size[0])))
    exact = mixing.numpy() @ updates.numpy().astype(np.longdouble)
    spread = np.abs(mixing.numpy()) @ np.abs(updates.numpy())
    together = geometry.combine(mixing, updates).numpy()
    for row in range(3):
        alone = geometry.combine(mixing[row : row + 1], updates)[0].numpy()
        for found in (alone, together[row]):
            allowed = 1e-7 * np.abs(exact[row]) + 1e-14 * spread[row]
            assert (np.abs(found - exact[row]) <= allowed).all()


@pytest.mark.parametrize("num", [1, 2, 3, 4, 9])
def test_sums_take_weights_and_updates_of_any_kind(num: int) -> None:
    updates, weights = updates_of((num, 300), seed=num), torch.rand(num)
    expected = geometry.weighted_sum(weights.double(), updates)
    apart = torch.stack((weights, weights), dim=1)[:, 0]
    assert torch.equal(geometry.weighted_sum(apart, updates), expected)
    columns = updates.T.contiguous().T
    torch.testing.assert_close(geometry.weighted_sum(weights, columns), expected)
    exact = geometry.weighted_sum(weights, updates.double())
    torch.testing.assert_close(exact.float(), expected)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (7,), (3, 1), (1, 3)])
def test_a_sum_needs_a_weight_for_each_update(shape: tuple[int, ...]) -> None:
    for updates in (torch.ones(3, 40), torch.ones(3, 40).double()):
        with pytest.raises(ValueError, match="expected 3 weights"):
            geometry.weighted_sum(torch.ones(shape), updates)


def test_a_sum_that_would_lose_gradients_is_refused() -> None:
    updates, weights = torch.ones(3, 40), torch.ones(3)
    for pair in ((weights.requires_grad_(), updates), (torch.ones(3), updates.requires_grad_())):
        with pytest.raises(ValueError, match="`weights @ updates`"):
            geometry.weighted_sum(*pair)


def test_an_update_that_is_not_finite_spoils_only_its_own_products() -> None:
    updates = updates_of((6, 300), seed=0)
    clean = geometry.gram_matrix(updates)
    updates[2, 17] = torch.nan
    found = geometry.gram_matrix(updates)
    others = torch.tensor([0, 1, 3, 4, 5])
    assert found[2].isnan().all()
    assert torch.equal(found[others][:, others], clean[others][:, others])


@pytest.mark.parametrize("rows", [slice(0, 3), slice(3, 4), slice(2, 9)])
def test_products_do_not_depend_on_company(rows: slice) -> None:
    updates = updates_of((9, 1000), seed=1)
    assert torch.equal(
        geometry.gram_matrix(updates)[rows, rows], geometry.gram_matrix(updates[rows])
    )


CODE = """
import hashlib, json
import fedcome_ray, torch
from fedcome_ray.numerics import geometry
updates = torch.arange(7 * 3001).reshape(7, 3001).sin()
parts = geometry.gram_matrix(updates), geometry.combine(torch.ones(1, 7).double() / 3, updates)
print(json.dumps([hashlib.sha256(part.numpy().tobytes()).hexdigest() for part in parts]))
"""


def test_processors_with_shorter_vectors_give_the_same_bits() -> None:
    shorter = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
    if torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}:
        pytest.skip("not a processor whose vectors can be shortened")
    assert answer_of(CODE) == answer_of(CODE, **shorter)
