"""The page about plugins: its files are short, and its commands run with them."""

import re
from pathlib import Path

import pytest
import yaml

from fedcome_ray import run
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.settings import assign
from tests.docs.pages import DOCS, commands
from tests.unit.plugins.conftest import as_before as as_before  # what they load is forgotten

PAGE = DOCS / "extending.md"
FILES = dict(
    re.findall(r"Save this as `(\w+\.py)`:\n\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
)
RUNS = [words[1:] for words in commands(PAGE) if words[0] == "fedcome_ray.run"]


def test_there_is_one_of_each() -> None:
    assert list(FILES) == ["median.py", "tiny_cnn.py", "rested.py", "moons.py", "lab.py"]
    assert [words[1] for words in RUNS] == list(FILES)


@pytest.mark.parametrize("name", FILES)
def test_each_is_written_in_under_thirty_lines(name: str) -> None:
    assert len(FILES[name].splitlines()) < 30


@pytest.mark.parametrize("words", RUNS, ids=[words[1] for words in RUNS])
def test_the_command_runs(words: list[str], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    pairs = [word.split("=", 1) for word in words[3::2]]
    settings = grid.defaults()
    assign(settings, [(name, yaml.safe_load(value)) for name, value in pairs])
    assign(settings, [("rounds", 3)])
    result = run(settings, plugins=[tmp_path / words[1]])
    assert result.rounds["round"].tolist() == [0, 1, 2, 3]
    assert result.rounds["loss/test"].iloc[-1] < result.rounds["loss/test"].iloc[0]
