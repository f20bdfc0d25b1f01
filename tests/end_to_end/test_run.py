"""One trial through the command line: result, model, start from a model, data of one's own."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedcome_ray.trials.folder import read_rounds
from tests.end_to_end.commands import run, start

# Nearly no step in the first round, so that its results are those of the params it started from.
STILL = ["--set", "local.lr=1e-12"]
SMALL = ["--set", "data.num_clients=20", "--set", "model.hidden=[16]"]


def run_trial(output: Path, *arguments: str) -> Any:
    return run("fedcome_ray.run", *SMALL, "--output", str(output), *arguments)


def folder_of(output: Path) -> Path:
    (folder,) = (output / "trials").iterdir()
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    output = tmp_path_factory.mktemp("first")
    settings = ["--set", "rounds=6", "--set", "local.lr=0.2", "--set", "local.epochs=3"]
    return run_trial(output, *settings), folder_of(output)


def test_the_end_shows_the_result_and_where_it_is(first: tuple[Any, Path]) -> None:
    said, folder = first
    assert said.returncode == 0
    name = "fedavg-digits-p1-random-s0-num_clients=20-hidden=16-lr=0.2-epochs=3-rounds=6"
    assert said.stdout.startswith(f"{name}\nafter 6 rounds on digits\n")
    assert "accuracy/test" in said.stdout
    assert str(folder) in said.stdout
    assert "Traceback" not in said.stderr
    assert "mlflow" not in said.stderr


def test_it_says_at_once_what_it_does(first: tuple[Any, Path]) -> None:
    assert first[0].stderr.startswith("preparing the trial ...\nloading digits ...\n")


def test_programs_get_the_result_as_json_alone(first: tuple[Any, Path]) -> None:
    _, folder = first
    settings = ["--set", "local.epochs=3", "--set", "local.lr=0.2", "--set", "rounds=6"]
    said = run_trial(folder.parents[1], *settings, "--json", "--quiet")
    found = json.loads(said.stdout)
    result = json.loads((folder / "result.json").read_text())
    assert found["final"] == result["final"]
    assert found["folder"] == str(folder)
    assert found["was_finished"]
    assert said.stderr == ""


def test_the_model_can_be_read_with_safetensors_alone(first: tuple[Any, Path]) -> None:
    params = load_file(first[1] / "model.safetensors")["params"]
    assert params.shape == (64 * 16 + 16 + 16 * 10 + 10,)
    assert np.isfinite(params).all()


def test_a_finished_trial_is_shown_and_not_run_again(first: tuple[Any, Path]) -> None:
    said, folder = first
    before = (folder / "result.json").stat().st_mtime_ns
    settings = ["--set", "local.epochs=3", "--set", "local.lr=0.2", "--set", "rounds=6"]
    again = run_trial(folder.parents[1], *settings).stdout
    assert again == f"finished earlier, nothing is run\n{said.stdout}"
    assert (folder / "result.json").stat().st_mtime_ns == before


def test_training_goes_on_from_a_given_model(first: tuple[Any, Path], tmp_path: Path) -> None:
    model = first[1] / "model.safetensors"
    said = run_trial(tmp_path, *STILL, "--set", "rounds=1", "--init-model", str(model))
    assert said.returncode == 0
    given, kept = load_file(model), load_file(folder_of(tmp_path) / "model.safetensors")
    np.testing.assert_allclose(kept["params"], given["params"], atol=1e-6)
    finals = [
        json.loads((folder / "result.json").read_text())["final"]["accuracy/test"]
        for folder in (first[1], folder_of(tmp_path))
    ]
    assert finals[0] == finals[1]


@pytest.mark.parametrize("values", [np.full(1210, np.nan, np.float32), np.ones(1210, np.int64)])
def test_a_model_that_is_no_finite_numbers_is_refused(values: Any, tmp_path: Path) -> None:
    save_file({"params": values}, tmp_path / "model.safetensors")
    said = run_trial(tmp_path / "out", "--init-model", str(tmp_path / "model.safetensors"))
    assert said.returncode == 2
    assert "must be finite real numbers" in said.stderr


def test_a_model_of_another_shape_is_refused(first: tuple[Any, Path], tmp_path: Path) -> None:
    model = str(first[1] / "model.safetensors")
    said = run_trial(tmp_path, "--set", "model.hidden=[8]", "--init-model", model)
    assert said.returncode == 2
    assert "the file has params of shape [1210], the model `mlp` needs [610]" in said.stderr
    assert not (tmp_path / "trials").exists()


def test_a_dataset_of_ones_own_is_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    x = (rng.standard_normal((200, 3)) + 4 * y[:, None]).astype(np.float32)
    clients = np.arange(200) % 5
    sides = {"train": slice(0, 150), "test": slice(150, 200)}
    arrays = {
        f"{name}_{side}": array[part]
        for side, part in sides.items()
        for name, array in {"x": x, "y": y, "client": clients}.items()
    }
    np.savez(tmp_path / "mine.npz", **arrays)
    said = run(
        "fedcome_ray.run",
        *["--set", f"data.dataset=npz:{tmp_path / 'mine.npz'}", "--set", "model.name=logistic"],
        *[
            "--set",
            "local={lr: 0.3, batch_size: 5}",
            "--set",
            "rounds=20",
            "--output",
            str(tmp_path / "results"),
        ],
    )
    assert said.returncode == 0, said.stderr
    result = json.loads((folder_of(tmp_path / "results") / "result.json").read_text())
    assert result["final"]["accuracy/test"] > 0.9


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_who_is_told_to_stop_leaves_a_checkpoint_between_two_rounds(
    told: signal.Signals, tmp_path: Path
) -> None:
    settings = ["--set", "method.name=scaffold", "--set", "rounds=100000"]
    process = start("fedcome_ray.run", *SMALL, *settings, "--output", str(tmp_path))
    end = time.monotonic() + 120
    while not (begun := list(tmp_path.glob("trials/*/rounds.jsonl"))) and time.monotonic() < end:
        time.sleep(0.1)
    assert begun
    process.send_signal(told)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.endswith("interrupted; the same command goes on\n")
    assert "stopping: trials write checkpoints" in said
    assert "Traceback" not in said
    folder = folder_of(tmp_path)
    state = load_file(folder / "checkpoint.safetensors")
    assert state["server.round_index"] == read_rounds(folder)[-1].number > 0
