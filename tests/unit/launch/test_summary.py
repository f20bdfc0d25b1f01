"""The table at the end of a launch."""

import io
import re
from statistics import mean, stdev
from typing import Any

import pytest
from rich.console import Console

from fedcome_ray.experiments import grid
from fedcome_ray.experiments.grid import Grid
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.launch.summary import Reached, accuracy_table, cost_table


def expand(**axes: list[Any]) -> list[Trial]:
    chosen = Grid.model_validate({"description": "d", "axes": axes, "profiles": {"quick": {}}})
    return grid.expand(chosen, "quick")


def cells(trials: list[Trial], accuracy: dict[str, float]) -> list[list[str]]:
    """The rows of the table as text; the last round is one point worse than the tail."""
    reached = {key: Reached(100 * value, 100 * value - 1) for key, value in accuracy.items()}
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(accuracy_table(trials, reached))
    return rows_of(console.export_text())


def rows_of(text: str) -> list[list[str]]:
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if "───" in line)
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 :]]
    return [row for row in rows if row != [""]]


METHODS = [{"name": "fedavg"}, {"name": "fedcome"}]


def test_a_cell_is_the_mean_and_the_spread_over_the_seeds() -> None:
    trials = expand(method=METHODS, seed=[0, 1, 2])
    values = [0.5, 0.6, 0.9, 0.1, 0.2, 0.3]
    accuracy = {trial.key: value for trial, value in zip(trials, values, strict=True)}
    percent = [100 * value for value in values[:3]]
    expected = f"{mean(percent):.1f}±{stdev(percent):.1f} {mean(percent) - 1:.1f}"
    assert cells(trials, accuracy) == [["fedavg", expected], ["fedcome", "20.0±10.0 19.0"]]


def test_the_best_is_bold_and_references_do_not_compete() -> None:
    trials = expand(method=[*METHODS, {"name": "centralised"}])
    reached = {t.key: Reached(v, v) for t, v in zip(trials, (50.0, 60.0, 90.0), strict=True)}
    console = Console(width=200, file=io.StringIO(), record=True, force_terminal=True)
    console.print(accuracy_table(trials, reached))
    text = console.export_text(styles=True)
    bold = re.findall(r"\x1b\[1m(\d+\.\d)", text)
    assert bold == ["60.0"]


def test_the_last_varying_number_makes_the_columns() -> None:
    trials = expand(method=METHODS, participation=[0.1, 0.2])
    accuracy = {trial.key: trial.participation or 0 for trial in trials}
    assert cells(trials, accuracy) == [
        ["fedavg", "10.0 9.0", "20.0 19.0"],
        ["fedcome", "10.0 9.0", "20.0 19.0"],
    ]


def test_what_a_dataset_brings_with_it_needs_no_columns() -> None:
    cases = [
        {"data": {"dataset": "digits"}, "model": {"name": "mlp"}},
        {"data": {"dataset": "synthetic"}, "model": {"name": "logistic"}, "local.lr": 0.01},
    ]
    trials = expand(case=cases, method=METHODS)
    accuracy = {trial.key: number / 10 for number, trial in enumerate(trials)}
    assert cells(trials, accuracy) == [
        ["fedavg", "0.0 -1.0", "20.0 19.0"],
        ["fedcome", "10.0 9.0", "30.0 29.0"],
    ]


def test_what_is_not_finished_is_a_dash_and_not_a_zero() -> None:
    trials = expand(method=METHODS)
    assert cells(trials, {trials[0].key: 0.5}) == [["fedavg", "50.0 49.0"], ["fedcome", "-"]]


def test_one_trial_is_a_table_too() -> None:
    assert cells([parse_trial({})], {}) == [["fedavg", "-"]]


def test_only_seeds_are_averaged() -> None:
    trials = expand(
        method=[{"name": "fedprox", "mu": 0.01}, {"name": "fedprox", "mu": 0.1}], seed=[0, 1]
    )
    accuracy = {t.key: v for t, v in zip(trials, [0.5, 0.5, 0.7, 0.7], strict=True)}
    assert cells(trials, accuracy) == [
        ["fedprox(mu=0.01)", "50.0±0.0 49.0"],
        ["fedprox(mu=0.1)", "70.0±0.0 69.0"],
    ]


@pytest.mark.parametrize("name", grid.grid_names())
@pytest.mark.parametrize("profile", grid.PROFILES)
def test_the_tables_of_our_grids_fit_80_columns(name: str, profile: str) -> None:
    trials = grid.expand(grid.load(name), profile)
    reached = {trial.key: Reached(95.31 + trial.seed, 94.27) for trial in trials}
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(accuracy_table(trials, reached))
    text = console.export_text()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_a_table_that_is_too_wide_goes_on_below_itself() -> None:
    shares = [n / 100 for n in range(1, 13)]
    trials = expand(method=METHODS, participation=shares)
    reached = {trial.key: Reached(95.31, 94.27) for trial in trials}
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(accuracy_table(trials, reached))
    text = console.export_text()
    assert "…" not in text
    assert text.count("fedavg") == 2
    assert text.count("95.3 94.3") == len(trials)
    assert all(f" {share:g}" in text for share in shares)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_what_a_round_took_is_laid_out_in_the_same_way() -> None:
    trials = expand(method=METHODS, participation=[0.1, 0.2], seed=[0, 1])
    seconds = {trial.key: 0.01 + 0.002 * trial.seed for trial in trials[:-2]}
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(cost_table(trials, seconds))
    text = console.export_text()
    assert text.startswith("Milliseconds of a round, by participation")
    assert rows_of(text) == [
        ["fedavg", "11.0±1.4", "11.0±1.4"],
        ["fedcome", "11.0±1.4", "-"],
    ]


def test_trials_that_stopped_say_where_and_are_ranked_by_one_rule_only() -> None:
    stop = [{"patience": 2}, {"patience": 3}]

    def shown(*rules: dict[str, int] | None) -> str:
        trials = [
            parse_trial({"method": {"name": name}, "seed": seed, "stop": rule})
            for name, rule in zip(("fedavg", "fedcome"), rules, strict=True)
            for seed in (0, 1)
        ]
        reached = {trial.key: Reached(90.0, 91.0, 30 + 20 * trial.seed) for trial in trials}
        console = Console(width=120, record=True, file=io.StringIO(), force_terminal=True)
        console.print(accuracy_table(trials, reached))
        return console.export_text(styles=True)

    same, other = shown(stop[0], stop[0]), shown(*stop)
    assert "91.0 (40)" in same
    assert "91.0 (40)" in other
    assert "round where it stopped" in " ".join(same.split())
    assert "\x1b[1m90.0" in same
    assert "\x1b[1m90.0" not in other
