"""Geometry of a cohort's updates: their angles, their lengths, their combinations.

Everything is accumulated in float64 from updates of any precision, some params at a time, so that
no float64 copy of all updates is ever made.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray.errors import DivergenceError
from fedcome_ray.numerics.machine_code import DOUBLES, FLOATS, INTEGER, Function

Floats = NDArray[np.float64]

_MODULE = "fedcome_ray.numerics.double_sums"
_UPDATES = (FLOATS, INTEGER, INTEGER)
_USES = ("fedcome_ray.numerics.tiles",)
_GRAM_MATRIX = Function(_MODULE, "gram_matrix", (*_UPDATES, DOUBLES, INTEGER, DOUBLES), _USES)
_WEIGHTED_SUM = Function(_MODULE, "weighted_sum", (*_UPDATES, DOUBLES, FLOATS, DOUBLES), _USES)
_WIDTH, _STRETCH, _SIDE = 256, 2048, 4  # of the memory that they use; no tile has a longer side

_NUMBERS_AT_A_TIME = {"cpu": 400_000}
"""Converted to float64: few enough for the cache, enough for long products."""
_NUMBERS_ELSEWHERE = 2**24
"""On a GPU, whose kernels should have something to do: 128 MB."""


def gram_matrix(updates: Tensor) -> Tensor:
    """`updates @ updates.T` in float64, `[cohort, cohort]`."""
    if _fits_compiled_code(updates):
        return _compiled_gram_matrix(updates)
    gram = updates.new_zeros((len(updates), len(updates)), dtype=torch.float64)
    for _, part in _in_doubles(updates):
        gram.addmm_(part, part.T)
    return gram


def _compiled_gram_matrix(updates: Tensor) -> Tensor:
    num, dim = updates.shape
    rows = -(-num // _SIDE) * _SIDE
    gram, memory = (updates.new_zeros(rows, n, dtype=torch.float64) for n in (rows, _WIDTH))
    addresses = updates.data_ptr(), num, dim, gram.data_ptr(), rows, memory.data_ptr()
    _GRAM_MATRIX(*addresses)
    lower = gram[:num, :num].tril()
    return lower + lower.tril(-1).T


def _fits_compiled_code(updates: Tensor) -> bool:
    is_fit = updates.dtype == torch.float32 and updates.is_contiguous()
    return is_fit and updates.device.type == "cpu"


def normalise(gram: Tensor) -> tuple[Floats, Floats]:
    """Cosines between updates, and their lengths; the cosines of a zero update are zero."""
    products: Floats = gram.cpu().numpy()
    diverged = np.flatnonzero(~np.isfinite(products.diagonal()))
    if diverged.size:
        raise DivergenceError(
            f"{diverged.size} of {len(products)} updates are not finite, "
            f"at these positions of the cohort: {', '.join(map(str, diverged))}"
        )
    norms = np.sqrt(products.diagonal())
    divisors = nonzero(norms)
    cosines = np.clip(products / np.outer(divisors, divisors), -1.0, 1.0)
    cosines = (cosines + cosines.T) / 2.0  # a matrix product may differ from its transpose
    np.fill_diagonal(cosines, norms > 0.0)
    return cosines, norms


def combine(mixing: Tensor, updates: Tensor) -> Tensor:
    """`mixing @ updates`, in the precision of the updates."""
    if len(mixing) == 1:
        return weighted_sum(mixing[0], updates).unsqueeze(0)
    return _combine_in_doubles(mixing, updates)


def weighted_sum(weights: Tensor, updates: Tensor) -> Tensor:
    """`weights @ updates`, in the precision of the updates; a weight for each of them."""
    num, dim = updates.shape
    if weights.shape != (num,):
        raise ValueError(f"expected {num} weights, got a tensor of shape {[*weights.shape]}")
    if weights.requires_grad or updates.requires_grad:  # compiled code would leave it out
        raise ValueError("expected tensors without gradients; `weights @ updates` has them")
    if not _fits_compiled_code(updates):
        return _combine_in_doubles(weights.unsqueeze(0), updates).squeeze(0)
    weights = weights.to(updates.device, torch.float64).contiguous()
    total, memory = updates.new_empty(dim), weights.new_empty(_STRETCH)
    addresses = weights.data_ptr(), total.data_ptr(), memory.data_ptr()
    _WEIGHTED_SUM(updates.data_ptr(), num, dim, *addresses)
    return total


def _combine_in_doubles(mixing: Tensor, updates: Tensor) -> Tensor:
    mixing = mixing.to(updates.device, torch.float64)
    combined = updates.new_empty((len(mixing), updates.shape[1]))
    for columns, part in _in_doubles(updates):
        combined[:, columns] = mixing @ part
    return combined


def products(updates: Tensor, vector: Tensor) -> Floats:
    """`updates @ vector` in float64, `[cohort]`."""
    total = updates.new_zeros(len(updates), dtype=torch.float64)
    for columns, part in _in_doubles(updates):
        total += part @ vector[columns].double()
    result: Floats = total.cpu().numpy()
    return result


def triangular_factor(updates: Tensor, norms: Floats) -> Floats:
    """R of the QR decomposition of the updates scaled to length 1, one column for each.

    It keeps what cosines lose by squaring: two updates that differ by 1e-8 of their length have
    the cosine 1 in float64, but in R their difference has eight digits.
    """
    divisors = torch.from_numpy(nonzero(norms)).to(updates.device)
    factor = divisors.new_zeros((0, len(updates)))
    for _, part in _in_doubles(updates):
        factor = torch.linalg.qr(torch.cat((factor, part.T / divisors)), mode="r").R
    result: Floats = factor.cpu().numpy()
    return result


def clip(gradients: Tensor, max_norm: float) -> Tensor:
    """Each gradient scaled down to `max_norm`, as `torch.nn.utils.clip_grad_norm_` does it."""
    norm = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    return gradients * torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def length(lengths: Floats, cosines: Floats) -> float:
    """Length of a sum of vectors of given lengths; zero where they cancel to rounding."""
    squared = float(lengths @ cosines @ lengths)
    return squared**0.5 if squared > 1e-14 * np.abs(lengths).sum() ** 2 else 0.0


def nonzero(norms: Floats) -> Floats:
    """Divisors that leave zero updates zero."""
    return np.where(norms > 0.0, norms, 1.0)


def _in_doubles(updates: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some params of all updates in float64, and which they are; in the same memory every time."""
    at_a_time = _NUMBERS_AT_A_TIME.get(updates.device.type, _NUMBERS_ELSEWHERE)
    dim = updates.shape[1]
    width = min(dim, max(1, at_a_time // len(updates)))
    memory = updates.new_empty((len(updates), width), dtype=torch.float64)
    for start in range(0, dim, width):
        columns = slice(start, min(start + width, dim))
        yield columns, memory[:, : columns.stop - start].copy_(updates[:, columns])
