"""Whether there is something to compile."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedcome_ray import consensus, samplers
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch import compiling

PLAIN = parse_trial({})
FEDCOME = parse_trial({"method": {"name": "fedcome"}})
SIMILARITY = parse_trial({"sampler": {"name": "similarity"}, "participation": 0.2})


def modules(folder: Path) -> dict[str, SimpleNamespace]:
    """A module with one function that keeps its compiled code in a folder."""

    def solve() -> None: ...

    solve.stats = SimpleNamespace(cache_path=str(folder))  # type: ignore[attr-defined]
    return {"fedcome_ray.consensus.active_set": SimpleNamespace(solve=solve, number=3)}


def test_code_that_was_compiled_is_found_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "import_module", modules(tmp_path).__getitem__)
    assert compiling.is_due([PLAIN, FEDCOME])
    (tmp_path / "active_set.solve-29.py311.nbi").touch()
    assert not compiling.is_due([PLAIN, FEDCOME])


def test_methods_without_compiled_code_do_not_even_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "import_module", {}.__getitem__)
    assert not compiling.is_due([PLAIN])


def test_what_was_used_is_compiled() -> None:
    consensus.agree(torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.5, -1.0]]))
    assert not compiling.is_due([FEDCOME])
    sampler = samplers.build(SIMILARITY.sampler)
    sampler.sample(sampler.init(20), 10, np.random.default_rng(0))
    assert not compiling.is_due([SIMILARITY])
