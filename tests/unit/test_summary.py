"""The table at the end of a launch."""

import io
from statistics import mean, stdev
from typing import Any

from rich.console import Console

from fedcome_ray import grid
from fedcome_ray.config import Trial, parse_trial
from fedcome_ray.grid import Grid
from fedcome_ray.summary import labels, result_table


def expand(**axes: list[Any]) -> list[Trial]:
    chosen = Grid.model_validate({"description": "d", "axes": axes, "profiles": {"quick": {}}})
    return grid.expand(chosen, "quick")


def cells(trials: list[Trial], accuracy: dict[str, float]) -> list[list[str]]:
    """The rows of the table as text, without what draws the lines."""
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(result_table(trials, accuracy))
    rows = [line for line in console.export_text().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


METHODS = [{"name": "fedavg"}, {"name": "fedcome"}]


def test_a_cell_is_the_mean_and_the_spread_over_the_seeds() -> None:
    trials = expand(method=METHODS, seed=[0, 1, 2])
    values = [0.5, 0.6, 0.9, 0.1, 0.2, 0.3]
    accuracy = {trial.key: value for trial, value in zip(trials, values, strict=True)}
    percent = [100 * value for value in values[:3]]
    expected = f"{mean(percent):.2f} ± {stdev(percent):.2f}"
    assert cells(trials, accuracy) == [["fedavg", expected], ["fedcome", "20.00 ± 10.00"]]


def test_the_last_varying_number_makes_the_columns() -> None:
    trials = expand(method=METHODS, participation=[0.1, 0.2])
    accuracy = {trial.key: trial.participation or 0 for trial in trials}
    assert cells(trials, accuracy) == [["fedavg", "10.00", "20.00"], ["fedcome", "10.00", "20.00"]]


def test_what_is_not_finished_is_a_dash_and_not_a_zero() -> None:
    trials = expand(method=METHODS)
    assert cells(trials, {trials[0].key: 0.5}) == [["fedavg", "50.00"], ["fedcome", "-"]]


def test_one_trial_is_a_table_too() -> None:
    assert cells([parse_trial({})], {}) == [["fedavg", "-"]]


def test_a_trial_keeps_its_name_where_that_is_enough() -> None:
    trials = expand(method=METHODS, seed=[0, 1])
    assert list(labels(trials).values()) == [trial.name for trial in trials]


def test_trials_with_one_name_are_told_apart_by_what_varies() -> None:
    trials = expand(method=[{"name": "fedfv", "tau": 0}, {"name": "fedfv", "tau": 3}])
    assert list(labels(trials).values()) == [
        "fedfv-p1-random-s0 tau=0",
        "fedfv-p1-random-s0 tau=3",
    ]


def test_every_trial_of_our_grids_has_a_label_of_its_own() -> None:
    for name in grid.grid_names():
        trials = grid.expand(grid.load(name), "paper")
        assert len(set(labels(trials).values())) == len(trials)
