"""A whole search, by its command: candidates are run, compared, and the best become an overlay."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedcome_ray.trials.folder import read_rounds
from tests.end_to_end.commands import run

ROUNDS = 9
GRID = {
    "description": "FedAvg with step sizes of which some cannot work.",
    "base": {
        "data": {"dataset": "digits", "num_clients": 10},
        "local": {"epochs": 1, "batch_size": 16},
        "rounds": ROUNDS,
    },
    "axes": {"method": [{"name": "fedavg"}], "seed": [0]},
    "profiles": {"quick": {}},
    "space": {"fedavg": {"local.lr": {"low": 0.0001, "high": 0.3, "log": True}}},
}


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "rates.yaml"
    path.write_text(yaml.safe_dump(GRID, sort_keys=False))
    return path


def search(grid: Path, kind: str, samples: int, seeds: str = "0") -> Any:
    return run(
        "fedcome_ray.tune", "--grid", str(grid), "--search", kind, "--samples", str(samples),
        "--seeds", seeds,
        "--best", str(grid.parent / "best.yaml"), "--output", str(grid.parent / "results"),
    )  # fmt: skip


def rounds_by_rate(folder: Path) -> dict[float, list[int]]:
    """How many rounds each trial of a candidate ran, by its step size."""
    found: dict[float, list[int]] = {}
    for trial in folder.glob("results/trials/*"):
        settings = yaml.safe_load((trial / "trial.json").read_text())
        assert settings["data"]["validation"] == 0.1
        found.setdefault(settings["local"]["lr"], []).append(read_rounds(trial)[-1].number)
    return found


def best_of(folder: Path) -> Any:
    (rule,) = yaml.safe_load((folder / "best.yaml").read_text())
    return rule


def best_rate(folder: Path) -> float:
    rate: float = best_of(folder)["set"]["local.lr"]
    return rate


def test_optuna_tries_as_many_settings_as_asked_for_and_keeps_the_best(
    grid: Path, tmp_path: Path
) -> None:
    done = search(grid, "optuna", samples=6)  # one batch to learn from, and a half
    assert done.returncode == 0, done.stdout
    rounds = rounds_by_rate(tmp_path)
    assert list(rounds.values()) == [[ROUNDS]] * 6
    assert best_rate(tmp_path) in rounds
    assert best_rate(tmp_path) > 0.01  # the small ones learn next to nothing in nine rounds

    again = search(grid, "optuna", samples=6)
    assert again.returncode == 0
    assert rounds_by_rate(tmp_path) == rounds  # the same candidates, all found finished


def test_asha_stops_the_worse_settings_early(grid: Path, tmp_path: Path) -> None:
    done = search(grid, "asha", samples=9, seeds="0,1")
    assert done.returncode == 0, done.stdout
    assert "data.validation is not set" in done.stderr
    assert "16 trials were stopped early" in done.stdout
    rounds = rounds_by_rate(tmp_path)
    assert sorted(rounds.values()) == [[1, 1]] * 6 + [[3, 3]] * 2 + [[ROUNDS, ROUNDS]]
    assert rounds[best_rate(tmp_path)] == [ROUNDS, ROUNDS]
    assert best_of(tmp_path)["evidence"]["seeds"] == [0, 1]

    assert search(grid, "asha", samples=9, seeds="0,1").returncode == 0
    assert rounds_by_rate(tmp_path) == rounds  # what was stopped stays so
