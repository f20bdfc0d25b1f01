"""A trial as YAML with the origins of its settings."""

from importlib import import_module
from typing import Any

import pytest
import yaml

from fedcome_ray import tune
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch import show


def origin_in(text: str, line: str) -> str:
    """The comment behind a line."""
    (found,) = [other for other in text.splitlines() if other.strip().startswith(f"{line} ")]
    return found.partition("  # ")[2]


@pytest.mark.parametrize("name", grid.grid_names())
def test_what_is_shown_is_the_trial(name: str) -> None:
    for trial, origins in grid.traced(grid.load(name), "paper"):
        text = show.text(trial, origins)
        assert parse_trial(yaml.safe_load(text)) == trial
        assert text.startswith(f"# {trial.name}, key {trial.key}\n")


def test_every_value_says_where_it_comes_from() -> None:
    chosen = grid.Grid(base={"rounds": 7})
    overrides: list[tuple[str, Any]] = [("method.name", "fedfv"), ("method.tau", 3)]
    ((trial, origins),) = grid.traced(chosen, None, overrides)
    text = show.text(trial, origins)
    assert origin_in(text, "rounds: 7") == "base"
    assert origin_in(text, "tau: 3") == "--set"
    assert origin_in(text, "alpha: 0.5") == "default"  # of what was chosen
    assert all("  # " in line for line in text.splitlines()[1:] if not line.endswith(":"))


def test_what_is_found_out_says_by_what() -> None:
    trial = parse_trial({}).model_copy(update={"plugin": "3f2a"})
    assert origin_in(show.text(trial, {}), "plugin: 3f2a") == "plugin"
    assert origin_in(show.text(parse_trial({}), {}), "plugin: null") == "default"


def test_the_commands_show_and_start_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = import_module("fedcome_ray.run")  # the command, not the function
    assert run.main(["--show", "--set", "rounds=7"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["rounds"] == 7
    (tmp_path / "mine.yaml").write_text("axes: {seed: [1, 2]}")
    assert tune.main(["--show", "--grid", "mine.yaml"]) == 0
    shown = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [settings["seed"] for settings in shown] == [1, 2]
    assert not (tmp_path / "results" / "trials").exists()
