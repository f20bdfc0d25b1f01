"""How commands talk: to people, or to programs."""

import io
import json

import pytest

from fedcome_ray.console.output import Talk, doing, say


def test_results_are_on_stdout_and_the_rest_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk()
    talk.begin("preparing")
    doing(talk.progress(), "loading digits")
    say(talk.results(), "42 %")
    talk.document({"accuracy": 0.42})
    said = capsys.readouterr()
    assert said.out == "42 %\n"
    assert said.err == "preparing ...\nloading digits ...\n"


def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(json=True)
    talk.begin("preparing")
    say(talk.results(), "42 %")
    talk.document({"accuracy": 0.42})
    said = capsys.readouterr()
    assert json.loads(said.out) == {"accuracy": 0.42}
    assert said.err == "preparing ...\n42 %\n"


def test_quiet_leaves_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(quiet=True)
    talk.begin("preparing")
    doing(talk.progress(), "loading digits")
    say(talk.results(), "42 %")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("42 %\n", "")


def test_numbers_that_json_does_not_have_are_null() -> None:
    stdout = io.StringIO()
    Talk(json=True, stdout=stdout).document({"a": [float("nan"), {"b": float("inf")}], "c": (1,)})
    assert json.loads(stdout.getvalue()) == {"a": [None, {"b": None}], "c": [1]}
