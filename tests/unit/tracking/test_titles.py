"""The names of runs and groups on MLflow's pages."""

from typing import Any

import pytest

from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.tracking.titles import COMPARED, CONDITION, group_tags, title

WIDTH = 22  # characters that a column of MLflow's table shows


def test_what_tells_trials_apart_comes_first() -> None:
    settings: dict[str, Any] = {
        "method": {"name": "fedprox", "mu": 0.5},
        "sampler": {"name": "similarity", "ema": 0.9},
        "participation": 0.2,
        "seed": 3,
    }
    name = title(parse_trial(settings))
    assert name == "fedprox p0.2 s3 similarity digits mu=0.5 ema=0.9"
    assert title(parse_trial({"cohort_size": 7})) == "fedavg m7 s0 random digits"


def test_a_narrow_column_tells_the_trials_of_a_table_apart() -> None:
    trials = grid.expand(grid.load("partial_participation"), "paper")
    assert len({title(trial)[:WIDTH] for trial in trials}) == len(trials)


def test_only_seeds_share_a_condition() -> None:
    first, second = (parse_trial({"seed": seed}) for seed in (0, 1))
    assert group_tags(first) == group_tags(second)
    for change in ({"rounds": 7}, {"local": {"lr": 0.1}}, {"method": {"name": "fedavg"}}):
        other = parse_trial({**change, "plugin": "3f2a" if "method" in change else None})
        assert group_tags(other)[CONDITION] != group_tags(first)[CONDITION]
        assert group_tags(other)[COMPARED] == group_tags(first)[COMPARED]


@pytest.mark.parametrize("name", grid.grid_names())
def test_a_grid_has_as_many_conditions_as_trials_of_one_seed(name: str) -> None:
    trials = grid.expand(grid.load(name), "paper")
    seeds = {trial.seed for trial in trials}
    conditions = {group_tags(trial)[CONDITION] for trial in trials}
    assert len(conditions) * len(seeds) == len(trials)
