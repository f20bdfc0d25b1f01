"""What a trial's folder says of where the trial comes from."""

import sys
from pathlib import Path

import pytest

from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.trials import origin

TRIAL = parse_trial({})


def started_as(*words: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "orig_argv", ["/somewhere/bin/python", *words])
    return origin.command_line()


def test_a_command_is_told_as_one_would_type_it(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-m", "fedcome_ray.run", "--set", "method={name: fedavg}"]
    said = started_as(*words, monkeypatch=monkeypatch)
    assert said == "python -m fedcome_ray.run --set 'method={name: fedavg}'"


def test_a_command_is_one_line_and_has_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print(1)\n  print(2)"
    uri = "https://me:secret@host:5000/path"
    said = started_as("-c", code, "--tracking-uri", uri, monkeypatch=monkeypatch)
    assert said == "python -c 'print(1) print(2)' --tracking-uri https://***@host:5000/path"


def test_a_notebook_has_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-m", "ipykernel_launcher", "-f", "x.json"]
    assert started_as(*words, monkeypatch=monkeypatch) == "(a notebook)"


def test_the_commands_of_a_trial_are_kept_once_each_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    for command in ("first", "second", "first"):
        origin.keep_origin(TRIAL, folder, command)
    assert origin.read_commands(folder) == ["first", "second"]


def test_a_method_of_ours_needs_no_copy(tmp_path: Path) -> None:
    origin.keep_origin(TRIAL, tmp_path, "command")
    assert [path.name for path in tmp_path.iterdir()] == ["commands.txt"]
