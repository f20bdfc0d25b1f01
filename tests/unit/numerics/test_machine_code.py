"""What is compiled is kept, and found again only as it was written."""

from pathlib import Path

import pytest
import torch
from numba.core import config

from fedcome_ray.numerics import machine_code
from fedcome_ray.numerics.environment import portable_switches
from fedcome_ray.numerics.geometry import _WEIGHTED_SUM as FUNCTION
from fedcome_ray.numerics.geometry import combine


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine_code._loaded.cache_clear()
    return tmp_path


def sum_of_ones() -> float:
    return float(combine(torch.ones(1, 3).double(), torch.ones(3, 5))[0, 0])


def test_code_is_compiled_kept_and_loaded(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not FUNCTION.is_compiled()
    assert sum_of_ones() == 3.0
    assert FUNCTION.is_compiled()
    monkeypatch.setattr(machine_code, "_compile", None)  # not needed any more
    machine_code._loaded.cache_clear()
    assert sum_of_ones() == 3.0
    assert {file.suffix for file in FUNCTION.file.parent.iterdir()} == {".o", ".lock"}


@pytest.mark.parametrize("damage", [b"", b"x" * 5000])
def test_damaged_code_is_compiled_anew(damage: bytes) -> None:
    FUNCTION.file.parent.mkdir(parents=True)
    FUNCTION.file.write_bytes(damage)
    assert not FUNCTION.is_compiled()
    assert sum_of_ones() == 3.0
    assert FUNCTION.is_compiled()


def test_without_a_place_for_it_code_is_still_compiled(
    empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (empty_cache / "fedcome_ray").write_text("not a folder")
    assert sum_of_ones() == 3.0
    assert "cannot be kept" in caplog.text


def test_what_users_compile_with_numba_is_optimised_as_before() -> None:
    usual = config.OPT
    assert sum_of_ones() == 3.0
    assert config.OPT is usual


def test_other_processors_have_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    here = FUNCTION.file
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    assert FUNCTION.file != here


def test_portable_code_is_that_of_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = FUNCTION.file
    for name, value in portable_switches().items():
        monkeypatch.setenv(name, value)
    assert FUNCTION.file == here
    assert sum_of_ones() == 3.0
