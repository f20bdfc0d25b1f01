"""Params to start from, instead of those that a seed gives: the file of `--init-model`."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedcome_ray.errors import UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.trials import checkpoint


def read_params(path: Path) -> torch.Tensor:
    """The params in a model file of ours."""
    if path.exists() and not path.is_file():
        raise UserError(f"--init-model: cannot read `{path}`: not a file")
    try:
        checkpoint.check(path)
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"--init-model: cannot read `{path}`: {error}") from None
    if "params" not in tensors:
        raise UserError(f"--init-model: `{path}` has no tensor `params`; it has {list(tensors)}")
    params = tensors["params"]
    if not params.is_floating_point() or not params.isfinite().all():
        raise UserError(f"--init-model: the params of `{path}` must be finite real numbers")
    return params.float()


def digest(params: torch.Tensor) -> str:
    """By which a trial's settings know them."""
    return hashlib.sha256(params.numpy().tobytes()).hexdigest()


def started_from(trials: Iterable[Trial], params: torch.Tensor | None) -> list[Trial]:
    """The trials, with these params as their start if there are any."""
    if params is None:
        return list(trials)
    update = {"init_digest": digest(params)}
    return [trial.model_copy(update=update) for trial in trials]
