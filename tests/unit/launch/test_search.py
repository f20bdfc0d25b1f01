"""What a search finds, and what other grids take of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray.console.options import Locations
from fedcome_ray.errors import GridError, UserError
from fedcome_ray.experiments import grid, overlay
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import search
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Request
from fedcome_ray.runtime.schedulers import SuccessiveHalving
from tests.finished import finish

MUS = (0.001, 0.01, 0.1)
SPACE = {"fedprox": {"method.mu": {"low": 1e-4, "high": 1.0, "log": True}}}


def fedprox(mu: float, seed: int = 0) -> Trial:
    return parse_trial({"method": {"name": "fedprox", "mu": mu}, "seed": seed})


def test_the_best_setting_is_that_with_the_best_mean_over_seeds() -> None:
    trials = [fedprox(mu, seed) for mu in MUS for seed in (0, 1)]
    accuracy = dict(zip([t.key for t in trials], [0.5, 0.5, 0.9, 0.7, 0.95, 0.6], strict=True))
    (rule,) = overlay.best(trials, accuracy)
    assert rule.when == {"data.dataset": "digits", "method.name": "fedprox"}
    assert rule.set == {"method.mu": 0.01}
    assert rule.evidence["accuracy"] == pytest.approx(0.8)
    assert rule.evidence["trials"] == [trials[2].key, trials[3].key]


def test_failing_where_it_is_hard_does_not_make_a_setting_better() -> None:
    partition = {"name": "classes_per_client"}
    trials = [
        parse_trial(
            {
                "method": {"name": "fedprox", "mu": mu},
                "data": {"dataset": "digits", "partition": partition | {"classes": classes}},
            }
        )
        for mu in (0.1, 0.01)
        for classes in (2, 4)
    ]
    finished = dict(zip([t.key for t in trials], [0.9, 0.96, None, 0.94], strict=True))
    (rule,) = overlay.best(trials, {key: a for key, a in finished.items() if a is not None})
    assert rule.set == {"method.mu": 0.1}
    assert rule.evidence["seeds"] == 1


def test_rules_for_something_else_are_refused() -> None:
    rules = [overlay.Rule(when={"data.dataset": "mnist"}, set={"method.mu": 1.0})]
    unused = overlay.Overlay(rules)
    unused({"data": {"dataset": "digits"}, "method": {"name": "fedprox"}})
    with pytest.raises(GridError, match=r"no trial of the grid is one of .*mnist"):
        unused.check_used()
    unused({"data": {"dataset": "mnist"}, "method": {"name": "fedprox"}})
    unused.check_used()


def test_settings_of_local_training_are_tuned_too() -> None:
    trials = [parse_trial({"local": {"lr": lr}}) for lr in (0.1, 0.2)]
    (rule,) = overlay.best(trials, {trials[0].key: 0.3, trials[1].key: 0.4})
    assert rule.set == {"local.lr": 0.2}


def test_a_method_that_was_run_in_one_way_needs_no_rule() -> None:
    trials = [fedprox(0.01, seed) for seed in (0, 1)]
    assert overlay.best(trials, {trial.key: 0.5 for trial in trials}) == []


def test_the_only_candidate_that_was_not_stopped_is_the_best() -> None:
    trials = [fedprox(mu) for mu in MUS]
    (rule,) = overlay.best(trials, {trials[1].key: 0.5})
    assert rule.set == {"method.mu": 0.01}
    assert rule.evidence["candidates"] == 1


def test_what_is_no_setting_of_the_method_makes_no_rule() -> None:
    trials = [
        parse_trial({"participation": share, "sampler": {"name": sampler}})
        for share in (0.1, 0.2)
        for sampler in ("random", "similarity")
    ]
    assert overlay.best(trials, {trial.key: 0.5 for trial in trials}) == []


def test_an_overlay_survives_its_file_and_changes_only_what_fits(tmp_path: Path) -> None:
    trials = [fedprox(mu) for mu in MUS]
    accuracy = {trial.key: trial.method.model_dump()["mu"] for trial in trials}
    path = tmp_path / "best.yaml"
    path.write_text(overlay.text(overlay.best(trials, accuracy), "a test"))
    rules = overlay.load(path)
    chosen = grid.Grid.model_validate(
        {
            "description": "d",
            "axes": {"method": [{"name": "fedavg"}, {"name": "fedprox"}]},
            "profiles": {"quick": {}},
        }
    )
    plain = grid.expand(chosen, "quick")
    changed = grid.expand(chosen, "quick", (), overlay.Overlay(rules))
    assert changed[0] == plain[0]
    assert changed[1].method.model_dump()["mu"] == 0.1


@pytest.mark.parametrize(("content", "says"), [("- 1", "not an overlay"), ("[", "not valid YAML")])
def test_a_file_that_is_no_overlay_is_refused(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "best.yaml").write_text(content)
    with pytest.raises(GridError, match=says):
        overlay.load(tmp_path / "best.yaml")


@pytest.mark.parametrize(
    "values",
    [{}, {"low": 1.0, "high": 0.5}, {"low": 0.0, "high": 1.0, "log": True}, {"choices": []}],
)
def test_a_range_that_is_none_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(GridError, match=r"range needs|at least one"):
        search.parse_space({"fedprox": {"method.mu": values}})


def test_only_what_an_overlay_can_hold_is_searched() -> None:
    with pytest.raises(GridError, match="`rounds` cannot be searched, only settings that start"):
        search.parse_space({"fedprox": {"rounds": {"choices": [1, 2]}}})


def test_random_candidates_lie_in_their_ranges_and_are_the_same_again() -> None:
    space = search.parse_space(SPACE)
    candidates = search.at_random(fedprox(0.01), space["fedprox"], 50)
    mus = [trial.method.model_dump()["mu"] for trial in candidates]
    assert len(set(mus)) == 50
    assert all(1e-4 <= mu <= 1.0 for mu in mus)
    assert sum(mu < 1e-2 for mu in mus) > 10  # logarithmic, so not all are large
    assert candidates == search.at_random(fedprox(0.01), space["fedprox"], 50)


@pytest.mark.parametrize(
    ("rounds", "milestones"), [(5, [1, 3]), (9, [1, 3]), (30, [4, 12]), (500, [56, 168])]
)
def test_the_worse_are_stopped_after_a_ninth_and_a_third_of_the_rounds(
    rounds: int, milestones: list[int]
) -> None:
    scheduler = SuccessiveHalving().of_tune([parse_trial({"rounds": rounds})])
    described = scheduler.debug_string()
    found = [int(number) for number in re.findall(r"Iter (\d+)", described)]
    assert sorted(number for number in found if number < rounds) == milestones


def test_a_grid_without_ranges_for_its_methods_is_refused() -> None:
    with pytest.raises(UserError, match="no `space` for its methods"):
        search.first_of_each_method([parse_trial({})], search.parse_space(SPACE))


def test_the_ranges_of_our_grid_contain_the_papers_values() -> None:
    chosen = grid.load("search")
    space = search.parse_space(chosen.space)
    for trial in grid.expand(chosen, "paper"):
        for name, values in space.get(name_of(trial.method), {}).items():
            value = flatten(trial.model_dump())[name]
            if values.choices is not None:
                assert value in values.choices
            else:
                assert (values.low or 0) <= value <= (values.high or 0)


def test_optuna_learns_where_the_best_setting_is(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    tried: list[Trial] = []

    def run(request: Request) -> Outcome:
        """An accuracy known in closed form."""
        tried.extend(request.trials)
        for trial in request.trials:
            mu = trial.method.model_dump()["mu"]
            finish(trial, request.folder(trial), accuracy=1 - abs(mu - 0.3))
        return Outcome(num_pending=0)

    locations = Locations(tmp_path, tracking_uri="")
    request = Request("search", "quick", [fedprox(0.001)], locations)
    space = search.parse_space({"fedprox": {"method.mu": {"low": 0.0, "high": 1.0}}})
    everything, _ = search.search(request, space, "optuna", 40, run)
    assert everything.trials == tried
    mus = [trial.method.model_dump()["mu"] for trial in tried]
    early, late = mus[:8], mus[-8:]
    assert sum(abs(mu - 0.3) for mu in late) < sum(abs(mu - 0.3) for mu in early)
    assert min(abs(mu - 0.3) for mu in mus) < 0.05
    first = list(tried)
    tried.clear()
    search.search(request, space, "optuna", 40, run)
    assert tried == first


def test_early_stopping_is_a_scheduler_that_the_search_passes_on(tmp_path: Path) -> None:
    schedulers = []

    def run(request: Request) -> Outcome:
        schedulers.append(request.scheduler)
        return Outcome(num_pending=0)

    request = Request("search", "quick", [fedprox(0.001)], Locations(tmp_path, tracking_uri=""))
    search.search(request, search.parse_space(SPACE), "asha", 3, run)
    assert [type(scheduler) for scheduler in schedulers] == [SuccessiveHalving]


def test_what_is_searched_cannot_be_set_too() -> None:
    space = search.parse_space(SPACE)
    search.check_free(["rounds"], "--set", [fedprox(0.1)], space)
    search.check_free(["method.mu"], "--set", [parse_trial({})], space)  # another method's
    with pytest.raises(UserError, match=r"--set method\.mu: the search draws it"):
        search.check_free(["method.mu"], "--set", [fedprox(0.1)], space)
