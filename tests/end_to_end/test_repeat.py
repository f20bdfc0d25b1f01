"""From a result back to what made it, and to the same result again."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.end_to_end.commands import ROOT, run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

SMALL = ["--set", "data.num_clients=10", "--set", "rounds=2"]
GRID = "base: {rounds: 2, data.num_clients: 10}\naxes: {method: [{name: momentum, beta: 0.3}]}\n"


def succeed(module: str, *arguments: str) -> str:
    said = run(module, *arguments)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def result_in(output: Path) -> Any:
    (folder,) = (output / "trials").iterdir()
    return json.loads((folder / "result.json").read_text())


def runs_of(output: Path, kind: str) -> tuple[MlflowClient, list[Any]]:
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    grid = client.get_experiment_by_name("mine").experiment_id
    return client, list(client.search_runs([grid], f"tags.`fedcome.kind` = '{kind}'"))


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("plugin") / "momentum.py"
    path.write_text(text.split("```python\n")[1].split("```")[0])
    return path


@pytest.fixture(scope="module")
def launched(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid with a plugin, which is edited afterwards."""
    output = tmp_path_factory.mktemp("launched")
    (output / "mine.yaml").write_text(GRID)
    words = ["--grid", str(output / "mine.yaml"), "--plugin", str(plugin)]
    said = succeed("fedcome_ray.tune", *words, "--output", str(output))
    assert "repeat one python -m fedcome_ray.run --from" in said
    plugin.write_text("raise RuntimeError('edited')\n")
    return output


def check_same(first: Path, second: Path) -> None:
    before, after = result_in(first), result_in(second)
    assert after["key"] == before["key"]
    assert after["params_sha256"] == before["params_sha256"]
    assert after["final"] == before["final"]


@pytest.mark.ray
def test_the_trial_of_a_grid_is_repeated_from_its_folder(launched: Path, tmp_path: Path) -> None:
    (folder,) = (launched / "trials").iterdir()
    succeed("fedcome_ray.run", "--from", str(folder), "--output", str(tmp_path))
    check_same(launched, tmp_path)


@pytest.mark.ray
def test_the_trial_of_a_grid_is_repeated_from_its_run_as_the_run_says(
    launched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, (trial,) = runs_of(launched, "trial")
    note = trial.data.tags["mlflow.note.content"]
    monkeypatch.chdir(tmp_path)
    _, again = note.replace("\\\n", " ").strip().rsplit("\n", 1)
    _, _, module, *words = shlex.split(again)
    succeed(module, *words)
    check_same(launched, tmp_path / "again")


@pytest.mark.ray
def test_mlflow_has_the_command_the_grid_and_the_plugin(launched: Path, plugin: Path) -> None:
    client, (trial,) = runs_of(launched, "trial")
    command = f"python -m fedcome_ray.tune --grid {launched / 'mine.yaml'} --plugin {plugin}"
    assert trial.data.tags["fedcome.command"].startswith(command)
    files = {file.path for file in client.list_artifacts(trial.info.run_id)}
    assert {"trial.json", "commands.txt", "plugins"} <= files
    _, (launch,) = runs_of(launched, "launch")
    assert launch.data.tags["fedcome.command"].startswith(command)
    kept = {
        name: client.download_artifacts(launch.info.run_id, f"made_from/{name}")
        for name in ("grid/mine.yaml", "plugins/momentum.py")
    }
    assert Path(kept["grid/mine.yaml"]).read_text() == GRID
    assert "class Momentum" in Path(kept["plugins/momentum.py"]).read_text()


def test_a_single_trial_says_how_to_repeat_it_and_so_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = succeed("fedcome_ray.run", *SMALL, "--output", str(tmp_path / "first"))
    (line,) = [line for line in said.splitlines() if line.startswith("repeat ")]
    monkeypatch.chdir(tmp_path)
    module, *words = line.partition("python -m ")[2].split()
    succeed(module, *words)
    check_same(tmp_path / "first", tmp_path / "again")
