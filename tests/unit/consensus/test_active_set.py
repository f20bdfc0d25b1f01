"""The active-set method on a triangular factor."""

import numpy as np
import pytest

from fedcome_ray.consensus import active_set

COARSE = 0.5  # so that updates often depend on others, as near-opposite ones do at 1e-9


def test_what_stays_violated_depends_on_the_final_passive_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not only on an earlier one, of which clients have left since."""
    monkeypatch.setattr(active_set, "SMALLEST_DISTANCE", COARSE)
    for seed in range(150):
        updates = np.random.default_rng(seed).normal(size=(30, 10))
        factor = (updates / np.linalg.norm(updates, axis=1, keepdims=True)).T

        multipliers = active_set.solve_on_factor(factor, factor[:, 0], np.zeros(30))

        assert (multipliers >= 0).all()
        passive = np.flatnonzero(multipliers)
        slack = factor.T @ (factor[:, 0] + factor @ multipliers)
        assert np.abs(slack[passive]).max(initial=0.0) < 1e-10
        basis, _ = np.linalg.qr(factor[:, passive])
        violated = factor[:, slack < -1e-10]
        distances = np.linalg.norm(violated - basis @ (basis.T @ violated), axis=0)
        assert (distances < COARSE).all(), seed
