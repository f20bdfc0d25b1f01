"""A launch leaves the files, columns and metrics that docs/outputs.md says, and no others."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors import safe_open

from fedcome_ray import datasets
from fedcome_ray.experiments.trial import parse_trial
from tests.docs.pages import DOCS, ROOT, blocks

PAGE = DOCS / "outputs.md"
TEXT = PAGE.read_text(encoding="utf-8")
GRID = """\
base: {participation: 0.2, rounds: 2, sampler.name: similarity, eval_train_every: 1,
  eval_personal_epochs: 1, availability.rate: 0.9}
axes: {method: [{name: momentum}]}
"""
# Files that this trial has no reason to have.
EXCEPTIONAL = {"after an error"}
GONE = {"checkpoint.safetensors"}


def section(title: str) -> str:
    """The text below a heading, up to the next."""
    return re.split(r"^#+ ", TEXT.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title: str) -> list[tuple[str, ...]]:
    """The table below a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in lines[2:]]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a launch with all that a launch can leave by itself."""
    folder = tmp_path_factory.mktemp("launched")
    (folder / "one.yaml").write_text(GRID)
    (folder / "momentum.py").write_text(blocks(DOCS / "adding_a_method.md")[0].text)
    words = ["--grid", "one.yaml", "--plugin", "momentum.py", "--trace"]
    subprocess.run(
        [sys.executable, "-m", "fedcome_ray.tune", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    return folder / "results"


@pytest.fixture(scope="module")
def trial(output: Path) -> Path:
    (folder,) = (output / "trials").iterdir()
    return folder


@pytest.mark.ray
def test_the_output_folder(output: Path) -> None:
    documented = {name.split("/")[0] for name, _ in rows("What a trial leaves")}
    found = {path.name for path in output.iterdir() if not path.name.startswith(".")}
    assert found == documented - {"fetched", "analysis"}
    (trace,) = (output / "traces").iterdir()
    assert re.fullmatch(r"one-\d{8}-\d{6}\.json", trace.name)


@pytest.mark.ray
def test_the_folder_of_a_trial(trial: Path) -> None:
    documented = {
        name.rstrip("/")
        for name, when, _ in rows("The folder of a trial")
        if when not in EXCEPTIONAL
    }
    found = {path.name for path in trial.iterdir() if not path.name.startswith(".")}
    assert found == documented - GONE


@pytest.mark.ray
@pytest.mark.parametrize("name", ["clients", "population", "similarity"])
def test_the_columns_of_a_table(trial: Path, name: str) -> None:
    frame = pd.read_parquet(trial / f"{name}.parquet")
    kinds = {column: str(kind) for column, kind in frame.dtypes.items()}
    words = {
        name: "text" if kind in {"str", "string", "object"} else kind
        for name, kind in kinds.items()
    }
    assert list(words.items()) == [(column, kind) for column, kind, _ in rows(f"{name}.parquet")]


@pytest.mark.ray
def test_the_fields_of_a_round_and_of_a_result(trial: Path) -> None:
    lines = [json.loads(line) for line in (trial / "rounds.jsonl").read_text().splitlines()]
    documented = [name for name, _ in rows("rounds.jsonl")]
    assert [list(line) for line in lines] == [documented] * 3
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert lines[0]["cohort"] == []
    (phases,) = re.findall(r"of each phase: ([\w, ]+\w)", section("rounds.jsonl"))
    measured = {name.removeprefix("seconds/") for name in lines[1]["seconds"]}
    assert measured == {"round", *phases.split(", ")}
    result = json.loads((trial / "result.json").read_text())
    assert list(result) == [name for name, _ in rows("result.json")]


@pytest.mark.ray
def test_the_metrics_of_a_round_are_named(trial: Path) -> None:
    named = set(
        re.findall(
            r"`((?:accuracy|loss|conflicts|cohort|server|comm|seconds)/\w+)`", section("Metrics")
        )
    )
    last = json.loads((trial / "rounds.jsonl").read_text().splitlines()[-1])
    result = json.loads((trial / "result.json").read_text())
    assert set(last["metrics"]) | set(result["final"]) <= named


@pytest.mark.ray
def test_the_model_is_one_vector_with_its_settings(trial: Path) -> None:
    with safe_open(trial / "model.safetensors", framework="pt") as file:
        assert file.keys() == ["params"]
        assert file.get_tensor("params").dtype == torch.float32
        assert json.loads(file.metadata()["trial"]) == json.loads(
            (trial / "trial.json").read_text()
        )


@pytest.mark.ray
def test_the_model_of_the_page_computes_what_the_trial_measured(
    trial: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(output.parent)
    plain: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.is_executed and "fedcome_ray" not in block.text:
            exec(compile(block.text, "outputs.md", "exec"), plain)
    settings = json.loads((trial / "trial.json").read_text())
    test = datasets.load(parse_trial({"data": settings["data"]}).data).test
    with torch.no_grad():
        logits = plain["plain"](torch.from_numpy(test.examples.x[test.order]))
    hits = (logits.argmax(1).numpy() == test.examples.y[test.order]).mean()
    assert hits == pytest.approx(plain["result"]["final"]["accuracy/test"])
