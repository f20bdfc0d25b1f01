"""What a reader of results is told of how they were computed."""

import subprocess
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.trials.provenance import NO_CHECKOUT, cautions, commits, has_changes, refuse_plain


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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a package, a grid and notes in it, all committed."""
    for name in ("fedcome_ray/run.py", "tune_configs/one.yaml", "README.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("first\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


@pytest.mark.parametrize("name", ["fedcome_ray/run.py", "tune_configs/one.yaml"])
def test_code_that_was_edited_is_a_change(checkout: Path, name: str) -> None:
    assert not has_changes(checkout)
    (checkout / name).write_text("second\n")
    assert has_changes(checkout)


@pytest.mark.parametrize("name", ["fedcome_ray/new.py", "fedcome_ray/new/room.py"])
def test_a_new_file_that_can_be_imported_is_a_change(checkout: Path, name: str) -> None:
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).touch()
    assert has_changes(checkout)


@pytest.mark.parametrize("name", ["momentum.py", "digits.png", "README.md"])
def test_notes_pictures_and_plugins_are_no_changes(checkout: Path, name: str) -> None:
    (checkout / name).write_text("mine\n")
    assert not has_changes(checkout)


def test_a_folder_inside_an_unrelated_repository_has_no_changes(checkout: Path) -> None:
    inner = checkout / "fedcome_ray"
    (inner / "fedcome_ray").mkdir()
    (inner / "fedcome_ray" / "new.py").touch()
    assert not has_changes(inner)


def test_commits_are_shortened_and_what_is_none_is_not() -> None:
    made = [{"commit": "0123456789abcdef"}, {"commit": NO_CHECKOUT}]
    assert commits(made) == "0123456789/not a checkout"
