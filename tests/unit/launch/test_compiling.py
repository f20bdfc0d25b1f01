"""Whether there is something to compile."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedcome_ray import consensus, samplers
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch import compiling
from fedcome_ray.models import dense
from fedcome_ray.numerics import machine_code
from fedcome_ray.numerics.machine_code import Function

CNN = {"model": {"name": "conv2"}}
PLAIN = parse_trial(CNN)
FEDCOME = parse_trial({**CNN, "method": {"name": "fedcome"}})
SIMILARITY = parse_trial({**CNN, "sampler": {"name": "similarity"}, "participation": 0.2})
DENSE = parse_trial({"model": {"name": "mlp"}})


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


def test_trials_that_need_little_compiled_code_do_not_even_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "import_module", {}.__getitem__)
    assert not compiling.is_due([PLAIN])


def test_what_was_used_is_compiled() -> None:
    consensus.agree(torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.5, -1.0]]))
    assert not compiling.is_due([FEDCOME])
    sampler = samplers.build(SIMILARITY.sampler)
    sampler.sample(sampler.init(20), 10, np.random.default_rng(0))
    assert not compiling.is_due([SIMILARITY])


def test_code_of_models_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiling.is_due([DENSE])
    functions = [one for one in vars(dense).values() if isinstance(one, Function)]
    functions[0].file.parent.mkdir(parents=True)
    functions[0].file.write_bytes(b"half of it")
    assert compiling.is_due([DENSE])
    for function in functions:
        machine_code.compile_once(function)
    assert not compiling.is_due([DENSE])
