"""What a search finds, and what other grids take of it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcome_ray.console.options import Locations
from fedcome_ray.errors import GridError, UserError
from fedcome_ray.experiments import grid, overlay
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import search
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import CHECKPOINT, write_rounds
from tests.finished import finish

MUS = (0.001, 0.01, 0.1)
SPACE = {"fedprox": {"method.mu": {"low": 1e-4, "high": 1.0, "log": True}}}


def fedprox(mu: float, seed: int = 0) -> Trial:
    data = {"dataset": "digits", "validation": 0.1}
    return parse_trial({"method": {"name": "fedprox", "mu": mu}, "seed": seed, "data": data})


def test_the_best_setting_is_that_with_the_best_mean_over_seeds() -> None:
    trials = [fedprox(mu, seed) for mu in MUS for seed in (0, 1)]
    accuracy = dict(zip([t.key for t in trials], [0.5, 0.5, 0.9, 0.7, 0.95, 0.6], strict=True))
    (rule,) = overlay.best(trials, accuracy, "c0ffee")
    assert rule.when == {"data.dataset": "digits", "method.name": "fedprox"}
    assert rule.set == {"method.mu": 0.01}
    assert rule.evidence == {
        "metric": "accuracy/tail",
        "validation": 0.1,
        "seeds": [0, 1],
        "mean": pytest.approx(0.8),
        "spread": pytest.approx(0.02**0.5, abs=1e-6),  # of 0.9 and 0.7
        "candidates": 3,
        "trials": [trials[2].key, trials[3].key],
        "commit": "c0ffee",
    }


def test_what_was_seen_on_test_examples_selects_nothing() -> None:
    tested = [parse_trial({"local": {"lr": lr}}) for lr in (0.1, 0.2)]
    accuracy = {tested[0].key: 0.3, tested[1].key: 0.4}
    assert overlay.best(tested, accuracy, "c0ffee") == []
    first, second = overlay.held_out(tested, 0.2)
    assert (first.data.validation, second.data.validation) == (0.2, 0.2)
    (rule,) = overlay.best([first, second], {first.key: 0.6, second.key: 0.5}, "c0ffee")
    assert rule.set == {"local.lr": 0.1}
    assert overlay.held_out([first, tested[0]], 0.2) == [first]  # each once
    assert overlay.held_out([first], 0.5) == [first]


def test_failing_where_it_is_hard_does_not_make_a_setting_better() -> None:
    partition = {"name": "classes_per_client"}
    trials = [
        parse_trial(
            {
                "method": {"name": "fedprox", "mu": mu},
                "data": {
                    "dataset": "digits",
                    "partition": partition | {"classes": classes},
                    "validation": 0.1,
                },
            }
        )
        for mu in (0.1, 0.01)
        for classes in (2, 4)
    ]
    finished = dict(zip([t.key for t in trials], [0.9, 0.96, None, 0.94], strict=True))
    (rule,) = overlay.best(
        trials, {key: a for key, a in finished.items() if a is not None}, "c0ffee"
    )
    assert rule.set == {"method.mu": 0.1}
    assert rule.evidence["seeds"] == [0]
    assert rule.evidence["spread"] is None


def test_rules_for_something_else_are_refused() -> None:
    rules = [overlay.Rule(when={"data.dataset": "mnist"}, set={"method.mu": 1.0})]
    unused = overlay.Overlay(rules)
    unused({"data": {"dataset": "digits"}, "method": {"name": "fedprox"}})
    with pytest.raises(GridError, match=r"no trial of the grid is one of .*mnist"):
        unused.check_used()
    unused({"data": {"dataset": "mnist"}, "method": {"name": "fedprox"}})
    unused.check_used()


def test_settings_of_local_training_are_tuned_too() -> None:
    data = {"dataset": "digits", "validation": 0.1}
    trials = [parse_trial({"local": {"lr": lr}, "data": data}) for lr in (0.1, 0.2)]
    (rule,) = overlay.best(trials, {trials[0].key: 0.3, trials[1].key: 0.4}, "c0ffee")
    assert rule.set == {"local.lr": 0.2}


def test_a_method_that_was_run_in_one_way_needs_no_rule() -> None:
    trials = [fedprox(0.01, seed) for seed in (0, 1)]
    assert overlay.best(trials, {trial.key: 0.5 for trial in trials}, "c0ffee") == []


def test_the_only_candidate_that_was_not_stopped_is_the_best() -> None:
    trials = [fedprox(mu) for mu in MUS]
    (rule,) = overlay.best(trials, {trials[1].key: 0.5}, "c0ffee")
    assert rule.set == {"method.mu": 0.01}
    assert rule.evidence["candidates"] == 1


def test_what_is_no_setting_of_the_method_makes_no_rule() -> None:
    trials = [
        parse_trial({"participation": share, "sampler": {"name": sampler}})
        for share in (0.1, 0.2)
        for sampler in ("random", "similarity")
    ]
    assert overlay.best(trials, {trial.key: 0.5 for trial in trials}, "c0ffee") == []


def test_an_overlay_survives_its_file_and_changes_only_what_fits(tmp_path: Path) -> None:
    trials = [fedprox(mu) for mu in MUS]
    accuracy = {trial.key: trial.method.model_dump()["mu"] for trial in trials}
    path = tmp_path / "best.yaml"
    path.write_text(overlay.text(overlay.best(trials, accuracy, "c0ffee"), "a test"))
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
    start = (fedprox(0.01, seed=3), fedprox(0.01, seed=5))
    candidates = search.at_random(start, space["fedprox"], 50)
    assert all([trial.seed for trial in candidate] == [3, 5] for candidate in candidates)
    mus = [trial.method.model_dump()["mu"] for trial, _ in candidates]
    assert mus == [trial.method.model_dump()["mu"] for _, trial in candidates]
    assert len(set(mus)) == 50
    assert all(1e-4 <= mu <= 1.0 for mu in mus)
    assert sum(mu < 1e-2 for mu in mus) > 10  # logarithmic, so not all are large
    assert candidates == search.at_random(start, space["fedprox"], 50)


@pytest.mark.parametrize(
    ("rounds", "eval_every", "milestones"),
    [
        (1, 1, []),
        (5, 1, [1, 3]),
        (9, 1, [1, 3]),
        (30, 1, [4, 12]),
        (500, 1, [56, 168]),
        (500, 50, [100, 200]),
        (30, 20, [20]),
        (9, 9, []),
    ],
)
def test_the_worse_are_stopped_after_a_ninth_and_a_third_of_the_rounds(
    rounds: int, eval_every: int, milestones: list[int]
) -> None:
    """Or at the next evaluation: before the first, nothing tells candidates apart."""
    trial = parse_trial({"rounds": rounds, "eval_every": eval_every})
    assert search.milestones(trial) == milestones


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
            misled = 0.5 * (mu if trial.seed else 1 - mu)  # each seed; their mean is not
            finish(trial, request.folder(trial), accuracy=1 - abs(mu - 0.3) + misled)
        return Outcome()

    locations = Locations(tmp_path, tracking_uri="")
    starts = [fedprox(0.001, seed) for seed in (0, 1)]
    request = Request("search", "quick", starts, locations)
    space = search.parse_space({"fedprox": {"method.mu": {"low": 0.0, "high": 1.0}}})
    everything, _ = search.search(request, space, "optuna", 40, run)
    assert everything.trials == tried
    assert len(tried) == 2 * 40
    mus = [trial.method.model_dump()["mu"] for trial in tried if trial.seed == 0]
    early, late = mus[:8], mus[-8:]
    assert sum(abs(mu - 0.3) for mu in late) < sum(abs(mu - 0.3) for mu in early)
    assert min(abs(mu - 0.3) for mu in mus) < 0.05
    first = list(tried)
    tried.clear()
    search.search(request, space, "optuna", 40, run)
    assert tried == first


def test_halving_goes_on_with_the_best_mean_over_seeds(tmp_path: Path) -> None:
    """Of nine candidates three survive, of these one; accuracies are known in closed form."""
    launched: list[tuple[int | None, list[Trial]]] = []

    def mu(trial: Trial) -> float:
        return float(trial.method.model_dump()["mu"])

    def run(request: Request) -> Outcome:
        pending = Finished.read(request).pending
        launched.append((request.pause_after, pending))
        for trial in pending:
            folder = request.folder(trial)
            folder.mkdir(parents=True, exist_ok=True)
            done = request.pause_after or trial.rounds
            misled = 3 * (mu(trial) if trial.seed else 1 - mu(trial))
            accuracy = {"accuracy/test": misled - abs(mu(trial) - 0.3)}
            write_rounds(folder, [Round(n, (), accuracy, {}, 0.0) for n in range(done + 1)])
            if request.pause_after is None:
                finish(trial, folder)
            else:
                index = np.array(done)
                checkpoint.write(folder / CHECKPOINT, {"server.round_index": index}, {})
        keys = {trial.key for trial in pending}
        return Outcome(keys, **{"stopped" if request.pause_after else "finished": keys})

    starts = [fedprox(0.001, seed) for seed in (0, 1)]
    request = Request("search", "quick", starts, Locations(tmp_path, tracking_uri=""))
    space = search.parse_space({"fedprox": {"method.mu": {"low": 0.0, "high": 1.0}}})
    everything, outcomes = search.search(request, space, "asha", 9, run)
    assert [(rounds, len(trials)) for rounds, trials in launched] == [(12, 18), (36, 6), (None, 2)]
    ranked = sorted(everything.trials, key=lambda trial: abs(mu(trial) - 0.3))
    assert {trial.key for trial in launched[1][1]} == {trial.key for trial in ranked[:6]}
    assert {trial.key for trial in launched[2][1]} == {trial.key for trial in ranked[:2]}
    whole = Outcome.of_all(outcomes)
    assert whole.finished == {trial.key for trial in ranked[:2]}
    assert whole.stopped == {trial.key for trial in ranked[2:]}
    assert not whole.is_interrupted

    launched.clear()
    _, outcomes = search.search(request, space, "asha", 9, run)
    assert [len(trials) for _, trials in launched] == [0, 0, 0], "the same command finds all done"
    assert Outcome.of_all(outcomes).stopped >= {trial.key for trial in ranked[2:]}


def test_a_candidate_that_fails_is_behind_all_others(tmp_path: Path) -> None:
    entries = [Round(n, (), {"accuracy/test": 0.9}, {}, 0.0) for n in range(3)]
    write_rounds(tmp_path, entries)
    assert search.accuracy_after(tmp_path, 2) == 0.9
    assert search.accuracy_after(tmp_path, 5) == -math.inf


def test_what_is_searched_cannot_be_set_too() -> None:
    space = search.parse_space(SPACE)
    search.check_free(["rounds"], "--set", [fedprox(0.1)], space)
    search.check_free(["method.mu"], "--set", [parse_trial({})], space)  # another method's
    with pytest.raises(UserError, match=r"--set method\.mu: the search draws it"):
        search.check_free(["method.mu"], "--set", [fedprox(0.1)], space)
