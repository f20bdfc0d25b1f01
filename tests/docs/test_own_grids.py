"""The examples of grids of one's own are run as the page says."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest
import yaml

from tests.docs.pages import DOCS, FENCE, blocks
from tests.end_to_end.commands import environment

TEXT = (DOCS / "grids.md").read_text(encoding="utf-8")
TITLE = re.compile(r"^### (.+)$", re.MULTILINE)


class Example(NamedTuple):
    """A part of the page: a file and the commands that use it."""

    file: str
    content: str
    commands: list[list[str]]


def examples() -> list[Example]:
    own = TEXT.split("## A grid of your own\n")[1].split("\n## ")[0]
    found = []
    for part in TITLE.split(own)[2::2]:
        if names := re.findall(r"Save this as\s+`(\w+\.yaml)`", part):
            fences = [(match["language"], match["text"]) for match in FENCE.finditer(part)]
            (content,) = [text for language, text in fences if language == "yaml"]
            (lines,) = [text for language, text in fences if language == "bash"]
            found.append(
                Example(names[0], content, [shlex.split(line) for line in lines.splitlines()])
            )
    return found


EXAMPLES = examples()
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=[e.file for e in EXAMPLES])


def test_the_three_examples_are_found() -> None:
    assert [example.file for example in EXAMPLES] == ["compare.yaml", "cases.yaml", "tuned.yaml"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "momentum.py").write_text(blocks(DOCS / "adding_a_method.md")[0].text)
    return folder


def run(words: list[str], folder: Path) -> str:
    assert words[:2] == ["python", "-m"]
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EXPECTED = {
    "compare.yaml": "9 of 9 trials",
    "cases.yaml": "4 of 4 trials",
    "tuned.yaml": " of 6 trials",
}


@pytest.mark.ray
@every_example
def test_an_example_runs_as_it_is_pasted_and_is_reported(example: Example, folder: Path) -> None:
    (folder / example.file).write_text(example.content)
    said = [run(words, folder) for words in example.commands]
    assert EXPECTED[example.file] in said[0]
    if example.file == "cases.yaml":
        assert len(list(yaml.safe_load_all(said[1]))) == 12
    if example.file == "tuned.yaml":
        (rule,) = yaml.safe_load((folder / "best.yaml").read_text())
        assert rule["when"]["method.name"] == "fedprox"
        assert set(rule["set"]) == {"method.mu", "local.lr"}
    grid = Path(example.file).stem
    run(["python", "-m", "fedcome_ray.report", "--grid", grid], folder)
    assert (folder / f"results/analysis/figures/{grid}_convergence.png").is_file()


def test_the_schema_with_ones_own_method_knows_the_examples(folder: Path) -> None:
    words = ["python", "-m", "fedcome_ray.settings", "--schema", "--plugin", "momentum.py"]
    assert " ".join(words) in TEXT
    validator = jsonschema.Draft7Validator(json.loads(run(words, folder)))
    for example in EXAMPLES:
        assert list(validator.iter_errors(yaml.safe_load(example.content))) == []
    own = jsonschema.Draft7Validator(json.loads((DOCS / "grid.schema.json").read_text()))
    assert not own.is_valid(yaml.safe_load(EXAMPLES[0].content))  # it has no such method
