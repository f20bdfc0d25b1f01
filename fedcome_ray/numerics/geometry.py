"""Geometry of a cohort's updates: their angles, their lengths, their combinations.

Everything is accumulated in float64 from updates of any precision, some params at a time, so that
no float64 copy of all updates is ever made.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcome_ray.errors import DivergenceError

Floats = NDArray[np.float64]

_NUMBERS_AT_A_TIME = {"cpu": 100_000}
"""Converted to float64: few enough for the cache, and for the allocator to reuse the memory."""
_NUMBERS_ELSEWHERE = 2**24
"""On a GPU, whose kernels should have something to do: 128 MB."""


def gram_matrix(updates: Tensor) -> Tensor:
    """`updates @ updates.T` in float64, `[cohort, cohort]`."""
    gram = updates.new_zeros((len(updates), len(updates)), dtype=torch.float64)
    for columns in _column_slices(updates):
        part = updates[:, columns].double()
        gram.addmm_(part, part.T)
    return gram


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
    mixing = mixing.to(updates.device)
    combined = updates.new_empty((len(mixing), updates.shape[1]))
    for columns in _column_slices(updates):
        combined[:, columns] = mixing @ updates[:, columns].double()
    return combined


def products(updates: Tensor, vector: Tensor) -> Floats:
    """`updates @ vector` in float64, `[cohort]`."""
    total = updates.new_zeros(len(updates), dtype=torch.float64)
    for columns in _column_slices(updates):
        total += updates[:, columns].double() @ vector[columns].double()
    result: Floats = total.cpu().numpy()
    return result


def triangular_factor(updates: Tensor, norms: Floats) -> Floats:
    """R of the QR decomposition of the updates scaled to length 1, one column for each.

    It keeps what cosines lose by squaring: two updates that differ by 1e-8 of their length have
    the cosine 1 in float64, but in R their difference has eight digits.
    """
    divisors = torch.from_numpy(nonzero(norms)).to(updates.device)
    factor = divisors.new_zeros((0, len(updates)))
    for columns in _column_slices(updates):
        part = updates[:, columns].double().T / divisors
        factor = torch.linalg.qr(torch.cat((factor, part)), mode="r").R
    result: Floats = factor.cpu().numpy()
    return result


def clip(gradients: Tensor, max_norm: float) -> Tensor:
    """Each gradient scaled down to `max_norm`, as `torch.nn.utils.clip_grad_norm_` does it."""
    norm = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
    return gradients * torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def nonzero(norms: Floats) -> Floats:
    """Divisors that leave zero updates zero."""
    return np.where(norms > 0.0, norms, 1.0)


def _column_slices(updates: Tensor) -> Iterator[Any]:
    at_a_time = _NUMBERS_AT_A_TIME.get(updates.device.type, _NUMBERS_ELSEWHERE)
    width = max(1, at_a_time // len(updates))
    for start in range(0, updates.shape[1], width):
        yield slice(start, start + width)
