"""Weights by TorchJD, a library of such methods: Gram matrix in, weights out.

It is imported when the first weights are asked for, since that takes seconds and only servers need
it; whether it is there is found out before.
"""

from importlib.util import find_spec
from typing import Any

import torch

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.geometry import Floats

NEEDED = ("torchjd", "cvxpy", "clarabel")


def check_installed(method: str) -> None:
    """Refuse a method whose library is missing."""
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise UserError(
            f"method.name: `{method}` needs {', '.join(missing)}, not installed here; "
            f"`pip install 'fedcome-ray[torchjd]'`"
        )


def weights_by(name: str, gram: Floats, **settings: Any) -> Floats:
    """What the weighting of this name makes of a Gram matrix."""
    from torchjd import aggregation

    weights = getattr(aggregation, name)(**settings)(torch.from_numpy(gram))
    found: Floats = weights.numpy()
    return found
