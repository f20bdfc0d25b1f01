"""What the documentation tells people to type is accepted, and what it states is so."""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from fedcome_ray import methods
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.overlay import Rule
from fedcome_ray.experiments.settings import parse_axes
from tests.docs.pages import (
    DEPLOY,
    DOCS,
    PAGES,
    READABLE,
    ROOT,
    blocks,
    commands,
    deployed_commands,
    name_of,
    shell_commands,
)

# Without arguments a command is only spoken of; NAME stands for one.
COMMANDS = [
    (page, words)
    for page in READABLE
    for words in commands(page)
    if len(words) > 1 or words[0] in {"fedcome_ray.ui", "fedcome_ray.run", "fedcome_ray.doctor"}
]
COMMANDS += [(path, words) for path in DEPLOY for words in deployed_commands(path)]
YAML = [
    (page, block.text) for page in READABLE for block in blocks(page) if block.language == "yaml"
]
EXECUTED = [page for page in PAGES if any(block.is_executed for block in blocks(page))]


def test_the_examples_are_found() -> None:
    assert len(COMMANDS) > 60
    assert len(YAML) > 10
    assert len(EXECUTED) >= 2


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{name_of(p)}: {' '.join(w)}" for p, w in COMMANDS]
)
def test_a_command_is_accepted(page: Path, words: list[str]) -> None:
    name, *arguments = words
    if not name.startswith("fedcome_ray") and name != "analysis":
        assert importlib.util.find_spec(name) is not None  # a script for developers
        return
    is_analysis = name in ("analysis", "fedcome_ray.report")
    parser = importlib.import_module("analysis.__main__" if is_analysis else name)._parser()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            options = parser.parse_args(arguments)
    except SystemExit:
        pytest.fail(f"{name_of(page)}: {complaint.getvalue()}")
    _check_settings(options)


def _check_settings(options: Any) -> None:
    """What the parser cannot know: that grids, profiles and settings exist."""
    if getattr(options, "plugin", []):
        return  # a method that a test of its own loads: tests/unit/test_plugins.py
    overrides = [text.split("=", 1) for text in getattr(options, "set", [])]
    values = [(name, yaml.safe_load(value)) for name, value in overrides]
    axes = parse_axes(getattr(options, "axis", []), values)
    if getattr(options, "grid", None) in grid.grid_names():
        profile = getattr(options, "profile", None) or "quick"
        assert grid.sweep(grid.load(options.grid), profile, values, axes)
    elif axes:
        assert grid.sweep(grid.DEFAULTS_ALONE, grid.NO_PROFILE, values, axes)
    elif not hasattr(options, "grid"):
        _check_trial(dict(values))


def _check_trial(settings: dict[str, Any]) -> None:
    """That these settings, given by dotted name, make a trial."""
    alone = grid.Grid(description="one", profiles={"quick": grid.Profile()})
    assert len(grid.expand(alone, "quick", settings.items())) == 1


@pytest.mark.parametrize(("page", "text"), YAML, ids=[name_of(page) for page, _ in YAML])
def test_a_block_of_yaml_is_what_it_seems(page: Path, text: str) -> None:
    found = yaml.safe_load(text)
    if isinstance(found, list):
        assert TypeAdapter(list[Rule]).validate_python(found)
    elif found.keys() <= grid.Grid.model_fields.keys():
        parsed = grid.Grid.model_validate(found)
        assert set(parsed.space) <= set(methods.REGISTRY)
        if "momentum" not in text:  # a plugin: tests/docs/test_own_grids.py runs it
            assert all(grid.expand(parsed, profile) for profile in parsed.profiles or [None])
    else:
        _check_trial(found)


@pytest.mark.parametrize("page", READABLE, ids=name_of)
def test_python_compiles(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, name_of(page), "exec")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one trial has been run, as the pages assume it."""
    folder = tmp_path_factory.mktemp("finished")
    settings = ["rounds=2", "participation=0.2", "sampler.name=similarity"]
    words = [word for setting in settings for word in ("--set", setting)]
    _run(["fedcome_ray.run", *words], folder)
    return folder


def _run(command: list[str], folder: Path) -> str:
    """What a command prints that is run as people do."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    words = [sys.executable, "-m", *command]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_marked_blocks_run(
    page: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python is executed, commands are run, and text is what the last of them prints."""
    folder, said = shutil.copytree(finished, tmp_path / "own"), ""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}  # of the page: blocks go on with each other
    for block in filter(lambda block: block.is_executed, blocks(page)):
        if block.language == "python":
            exec(compile(block.text, name_of(page), "exec"), names)
        elif block.language == "text":
            assert block.text.splitlines() == [line.rstrip() for line in said.splitlines()]
        else:
            for command in shell_commands(block):
                said = _run(command, folder)


def test_the_numbers_of_trials_are_right() -> None:
    text = (DOCS / "grids.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \|[^|]*\| ([\d| ]+) \|$", text, re.M)
    stated = {name: tuple(map(int, numbers.split("|"))) for name, numbers in rows}
    assert stated == {
        name: tuple(len(grid.expand(grid.load(name), profile)) for profile in grid.PROFILES)
        for name in grid.grid_names()
    }
    assert all(f'--8<-- "tune_configs/{name}.yaml"' in text for name in stated)


def test_every_room_has_a_page_of_the_reference() -> None:
    package = ROOT / "fedcome_ray"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*")}
    missing = {room for room in rooms if f"::: fedcome_ray.{room}\n" not in pages.get(room, "")}
    assert not missing
