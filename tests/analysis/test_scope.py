"""What was run is told by the settings, not by the name of the profile."""

from typing import Any

import pandas as pd
import pytest

from analysis import scope, scores
from analysis.results import parse
from analysis.study import select
from fedcome_ray.experiments.grid import expand, grid_names, load
from fedcome_ray.experiments.settings import flatten, parse_overrides
from tests.analysis.conftest import IDENTITY, join, opened, population_of, seeds, trial


def changes(grid: str, profile: str, *overrides: str, **also: Any) -> set[str]:
    """Of the trials that a command with these overrides runs, as the store gives them back."""
    found = expand(load(grid), profile, parse_overrides(overrides))
    rows = [
        {name: parse(str(value)) for name, value in flatten(one.model_dump(mode="json")).items()}
        for one in found
    ]
    trials = pd.DataFrame(rows).assign(**IDENTITY | {"grid": grid, "profile": profile}, **also)
    return set(scope.changes(trials, scores.settings(trials)))


@pytest.mark.parametrize("grid", grid_names())
def test_a_profiles_own_trials_are_unchanged(grid: str) -> None:
    for profile in load(grid).profiles:
        assert changes(grid, profile) == {""}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["rounds=3"], "rounds=3"),
        (["rounds=3", "local.lr=0.5"], "local.lr=0.5, rounds=3"),
        (["data.dataset=digits"], "data.dataset=digits, data.num_clients=50"),
        (["model.name=mlp"], "model.name=mlp, model.hidden=[64]"),
        (["method.name=fedprox", "method.mu=3"], "method.mu=3"),
        (["method.name=fednova", "rounds=3"], "rounds=3"),
    ],
)
def test_what_was_overridden_is_named(overrides: list[str], expected: str) -> None:
    assert changes("partial_participation", "paper", *overrides) == {expected}


@pytest.mark.parametrize(
    "overrides", [["seed=7"], ["eval_every=25"], ["eval_train_every=5"], ["method.name=fednova"]]
)
def test_seeds_evaluations_and_methods_more_are_no_change(overrides: list[str]) -> None:
    assert changes("partial_participation", "paper", *overrides) == {""}


def test_another_method_is_a_change_where_methods_are_not_compared() -> None:
    assert changes("sensitivity", "paper", "method.name=fednova") == {"method.name=fednova"}


def test_a_start_of_ones_own_is_a_change() -> None:
    assert changes("fairness", "paper", init_digest="ab" * 32) == {"init_digest=ababab…"}


def test_what_a_search_draws_is_no_change() -> None:
    own = ["method.name=feddyn", "method.alpha=0.034"]
    assert changes("search", "paper", *own) == {""}
    assert changes("partial_participation", "paper", *own) == {"method.alpha=0.034"}


def test_nothing_is_known_of_a_grid_that_is_not_ours() -> None:
    study = opened(seeds("fedcome", 70.0, grid="mine", local__lr=3.0))
    assert study.changes == ""
    assert study.papers == frozenset()


def test_the_papers_trials_are_the_papers_whatever_the_profile_is_called() -> None:
    paper = opened(seeds("fedcome", 96.0, profile="mini", data__dataset="mnist"))
    short = opened(seeds("fedcome", 70.0, profile="mini", grid="heterogeneity"))
    changed = opened(trial("fedcome", 0, 70.0, rounds=1))
    assert paper.papers == set(paper.frame["run_id"])
    assert not short.papers
    assert not changed.papers


def test_a_substitute_for_the_papers_data_is_not_the_papers() -> None:
    study = select(seeds("fedcome", 85.0, data__dataset="femnist"))
    trials = scores.trials(study.frame)
    population = population_of(trials)

    def papers(population: pd.DataFrame) -> frozenset[str]:
        return scope.papers(trials, scores.settings(trials), population)

    assert papers(population) == set(trials["run_id"])
    assert not papers(population.iloc[1:])
    assert not papers(population.assign(num_test=population["num_test"] + 1))
    assert not papers(population.iloc[:0])


def test_changed_trials_are_never_in_a_cell_with_others() -> None:
    changed = trial("fedcome", 1, 20.0, 90.0, rounds=2)
    study = select(join(seeds("fedcome", 70.0), changed))
    assert study.changes == ""
    assert set(study.frame["seed"]) == {0}
    assert set(study.aside["changes"]) == {"rounds=2"}


def test_changed_trials_are_shown_where_there_are_no_others() -> None:
    frame = join(
        *(trial("fedcome", s, 20.0, 70.0, rounds=2) for s in range(2)),
        trial("fedcome", 0, 80.0, rounds=1),
        trial("fedcome", 0, status="FAILED"),
    )
    study = select(frame)
    assert study.changes == "rounds=2"
    assert set(study.frame["rounds"]) == {2}
    assert set(study.aside["changes"]) == {"rounds=1", ""}
