"""What a reader of results is told of how they were computed."""

from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.trials.provenance import cautions, refuse_plain


def record(**changes: str) -> Arithmetic:
    plain = {
        "portable": "false",
        "cpu": "one",
        "aten": "AVX2",
        "company": "independent",
        "device": "cpu",
    }
    return plain | changes


def test_results_that_were_computed_alike_need_no_caution() -> None:
    assert cautions([[record()], [record()]]) == []
    assert cautions([]) == []


def test_different_instructions_are_named() -> None:
    (line,) = cautions([[record()], [record(aten="AVX512")]])
    assert "not all computed alike (aten: AVX2 | AVX512)" in line


def test_different_processors_count_unless_results_are_portable() -> None:
    assert "cpu: one | two" in cautions([[record()], [record(cpu="two")]])[0]
    assert cautions([[record(portable="true")], [record(portable="true", cpu="two")]]) == []


def test_a_server_and_its_gpus_are_no_reason_for_caution() -> None:
    trial = [record(), record(device="GPU")]
    assert cautions([trial, trial]) == []
    assert "device: cpu | cpu + GPU" not in cautions([trial, [record()]])[0]
    assert "device: GPU + cpu | cpu" in cautions([trial, [record()]])[0]


def test_a_gpu_on_which_company_shows_is_named() -> None:
    (line,) = cautions([[record(), record(device="GPU", company="dependent: dense")]])
    assert line.count("GPU") == 1
    assert "one" not in line.split("machine:")[1].split(";")[0]


def test_a_machine_on_which_company_shows_is_named() -> None:
    (line,) = cautions([[record(company="dependent: dense")]])
    assert "may depend on the number of shards on this machine: one" in line


def test_a_plain_result_is_not_passed_off_as_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_plain([record()], Path("folder"))
    monkeypatch.setenv("FEDCOME_PORTABLE", "1")
    refuse_plain([record(portable="true")], Path("folder"))
    with pytest.raises(UserError, match="folder was computed without it"):
        refuse_plain([record()], Path("folder"))
