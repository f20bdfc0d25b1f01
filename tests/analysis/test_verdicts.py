"""What decisions are called, depending on what was run."""

import math

import pandas as pd
import pytest

from analysis import verdicts
from analysis.study import Study
from analysis.verdicts import Claim, Comparison, Finding, Kind
from tests.analysis.conftest import join, opened, seeds, trial


def study(**changes: object) -> Study:
    return opened(join(*(trial("fedcome", s, 70.0, **changes) for s in range(3))))


def judge(
    *samples: tuple[float, ...],
    of: Study | None = None,
    kind: Kind = "everywhere",
    source: str | None = "a table",
    **about: tuple[object, ...],
) -> Finding:
    """A claim whose comparisons are given, made of all trials of a study."""
    of = study() if of is None else of

    def compare(part: Study) -> list[Comparison]:
        runs = list(part.frame["run_id"].unique())
        return [
            Comparison(f"{i}", pd.Series(own, dtype=float), runs) for i, own in enumerate(samples)
        ]

    wanted = {name.replace("__", "."): values for name, values in about.items()}
    claim = Claim("name", "text", source, compare, kind, wanted)
    return verdicts.check(claim, of.grid, of)


CLEAR, OPPOSITE, UNCLEAR = (1.0, 1.1, 0.9), (-1.0, -1.1, -0.9), (1.0, -1.1, 0.4)


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([CLEAR, CLEAR], "reproduced"),
        ([CLEAR, OPPOSITE], "not reproduced"),
        ([CLEAR, UNCLEAR], "open"),
        ([CLEAR, (1.0, 0.2, 0.4)], "leans for"),
        ([CLEAR, (-1.0, -0.3, -0.6)], "leans against"),
        ([CLEAR, ()], "open"),
        ([OPPOSITE, ()], "not reproduced"),
    ],
)
def test_claims_about_every_cell(samples: list[tuple[float, ...]], verdict: str) -> None:
    assert judge(*samples).verdict == verdict


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([CLEAR, (-0.5, -0.6, -0.4)], "reproduced"),
        ([OPPOSITE, (0.5, 0.6, 0.4)], "not reproduced"),
        ([CLEAR, OPPOSITE], "open"),
        ([CLEAR, ()], "open"),
    ],
)
def test_claims_about_averages(samples: list[tuple[float, ...]], verdict: str) -> None:
    assert judge(*samples, kind="on average").verdict == verdict


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([(0.0, 0.0, 1.0)], "reproduced"),
        ([(5.0, -0.1, 5.0)], "not reproduced"),
        ([(-1.0,)], "not reproduced"),
        ([(0.0,)], "leans for"),
        ([(0.0, 0.0, math.nan)], "open"),
    ],
)
def test_claims_about_every_run(samples: list[tuple[float, ...]], verdict: str) -> None:
    assert judge(*samples, kind="in every run").verdict == verdict


def test_averages_are_taken_seed_by_seed() -> None:
    found = judge((1.0, 9.0, 5.0), (9.0, 1.0, 5.1), kind="on average")
    assert found.pooled is not None
    assert found.pooled.difference == pytest.approx(5.0167, abs=1e-4)
    assert found.verdict == "reproduced"
    assert "on average +5.02 points (95 % interval +4.9" in found.reason


def test_other_rounds_and_data_hold_or_fail_here() -> None:
    of = study(profile="mini", grid="heterogeneity")
    assert judge(CLEAR, of=of).verdict == "holds here"
    assert judge(OPPOSITE, of=of).verdict == "fails here"
    assert judge(CLEAR, of=of).where == "CIFAR-10, 30 rounds, 3 seeds, profile mini"


def test_a_profile_called_paper_does_not_make_it_the_papers() -> None:
    found = judge(CLEAR, of=study(rounds=1))
    assert found.verdict == "not judged"
    assert "run with rounds=1" in found.reason


def test_without_the_population_it_is_not_known_to_be_the_papers() -> None:
    assert judge(CLEAR, of=study()._replace(papers=frozenset())).verdict == "holds here"


def test_one_trial_that_is_not_the_papers_is_enough() -> None:
    of = study()
    of = of._replace(papers=frozenset(list(of.papers)[1:]))
    assert judge(CLEAR, of=of).verdict == "holds here"


def test_the_quick_profile_is_not_judged_but_told() -> None:
    of = opened(seeds("fedcome", 70.0, 71.0, 72.0, profile="quick", data__dataset="digits"))
    found = judge(CLEAR, of=of)
    assert found.verdict == "not judged"
    assert "1 of 1 comparisons point its way" in found.reason


def test_a_question_of_ours_cannot_be_reproduced() -> None:
    assert judge(CLEAR, source=None).verdict == "holds here"
    assert judge(OPPOSITE, source=None).verdict == "fails here"


def test_a_part_of_the_claim_is_not_the_claim_but_may_refute_it() -> None:
    about = {"data__dataset": ("mnist", "cifar10")}
    assert judge(CLEAR, **about).verdict == "holds here"
    assert judge(OPPOSITE, **about).verdict == "not reproduced"
    assert judge(OPPOSITE, kind="on average", **about).verdict == "fails here"


def test_a_claim_is_about_its_own_values() -> None:
    frame = join(
        seeds("fedcome", 70.0, 71.0, 72.0), seeds("fedcome", 9.0, 9.0, data__dataset="mnist")
    )
    found = judge(CLEAR, of=opened(frame), data__dataset=("cifar10",))
    assert found.where.startswith("CIFAR-10, 500 rounds")
    assert found.verdict == "reproduced"


def test_what_the_paper_says_of_one_dataset_is_not_tested_on_another_of_its_own() -> None:
    found = judge(CLEAR, data__dataset=("femnist",))
    assert found.verdict == "not judged"
    assert "about FEMNIST, not run here" in found.reason


def test_other_data_may_stand_in_for_the_papers() -> None:
    of = opened(seeds("fedcome", 70.0, 71.0, 72.0, grid="heterogeneity"))
    frame = of.frame.assign(**{"data.dataset": "mnist"})
    found = judge(
        CLEAR, of=of._replace(frame=frame, papers=frozenset()), data__dataset=("cifar10",)
    )
    assert found.verdict == "holds here"
    assert found.where.startswith("MNIST")


def test_the_seeds_that_would_decide_are_told() -> None:
    found = judge(CLEAR, (1.0, -0.5, 1.0))
    assert found.seeds_to_decide == pytest.approx(20, abs=5)
    assert f"about {found.seeds_to_decide:.0f} seeds would decide" in found.reason
    assert math.isnan(judge(CLEAR).seeds_to_decide)
    assert "more than 1000 seeds" in judge((1.0, -1.0, 0.001)).reason


def test_each_refutation_is_corrected_for_their_number() -> None:
    weak = (-1.0, -1.5, -2.5)
    assert judge(weak).parts[0].decision == "fails"
    assert judge(weak, *[UNCLEAR] * 27).parts[0].decision == "open"


def test_a_grid_that_was_not_run_is_said_so() -> None:
    claim = Claim("name", "text", None, lambda study: [])
    found = verdicts.check(claim, "fairness", None)
    assert (found.verdict, found.reason) == ("not judged", "grid fairness has not been run")
    assert verdicts.check(claim, "fairness", study()).reason == "no finished trials to compare"
