import pandas as pd
import pytest
from scipy import stats

from analysis import claims
from analysis.claims import Claim, Comparison, decide
from analysis.contents import CONTENTS, check_claims
from analysis.study import Study, select
from analysis.tables import paper_table
from fedcome_ray.methods import PAPER
from tests.analysis.conftest import join, seeds, trial

ABOUT_MEANS = Claim("", "", lambda study: [])
ABOUT_EVERY_RUN = Claim("", "", lambda study: [], about_every_run=True)


def comparison(*differences: float) -> Comparison:
    return Comparison("", pd.Series(differences, dtype=float), [])


def finding(study: Study, name: str) -> claims.Finding:
    return next(f for f in check_claims({study.grid: study}) if f.claim.name == name)


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    values = [1.0, 2.0, 4.0]
    part = decide(comparison(*values), ABOUT_MEANS)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (part.low, part.high) == pytest.approx((expected.low, expected.high))
    assert part.effect == pytest.approx((7 / 3) / pd.Series(values).std())


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((1.0, 1.1, 0.9), "reproduced"),
        ((-1.0, -1.1, -0.9), "not reproduced"),
        ((1.0, -1.0, 0.5), "not enough runs"),
        ((1.0, 1.1), "not enough runs"),
        ((1.0, 1.1, float("nan")), "not enough runs"),
        ((), "not enough runs"),
    ],
)
def test_claims_about_means(differences: tuple[float, ...], verdict: str) -> None:
    assert decide(comparison(*differences), ABOUT_MEANS).verdict == verdict


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((0.0, 0.0, 1.0), "reproduced"),
        ((5.0, -0.1, 5.0), "not reproduced"),
        ((-1.0,), "not reproduced"),
        ((1.0,), "not enough runs"),
    ],
)
def test_claims_about_every_run(differences: tuple[float, ...], verdict: str) -> None:
    assert decide(comparison(*differences), ABOUT_EVERY_RUN).verdict == verdict


def heterogeneity(profile: str = "paper", *, methods: tuple[str, ...] = PAPER) -> Study:
    trials = [
        seeds(
            method,
            *(70.0 + 5 * (method == winner) + 0.1 * s for s in range(3)),
            grid="heterogeneity",
            profile=profile,
            data__partition__classes=classes,
        )
        for classes, winner in ((2, "fedcome"), (3, "fedcome"), (4, "feddyn"))
        for method in methods
    ]
    return select(join(*trials))


def test_a_claim_is_reproduced_if_all_its_comparisons_are() -> None:
    study = heterogeneity()
    assert finding(study, "best-heterogeneous").verdict == "reproduced"
    assert finding(study, "feddyn-4-classes").verdict == "reproduced"


def test_nothing_is_reproduced_from_the_quick_profile() -> None:
    study = heterogeneity("quick")
    assert finding(study, "best-heterogeneous").verdict == "not enough runs"
    assert "12 of 12" in finding(study, "best-heterogeneous").reason


def test_a_missing_method_leaves_the_claim_open() -> None:
    study = heterogeneity(methods=("fedcome", "fedavg"))
    found = finding(study, "best-heterogeneous")
    assert found.verdict == "not enough runs"
    assert "10 not run" in found.reason


def test_a_grid_that_was_not_run_is_said_so() -> None:
    findings = check_claims({})
    assert {f.verdict for f in findings} == {"not enough runs"}
    assert all("has not been run" in f.reason for f in findings)


def test_differences_are_paired_by_seed_and_name_their_runs() -> None:
    study = heterogeneity()
    part = finding(study, "best-heterogeneous").parts[0]
    assert part.seeds == 3
    assert part.difference == pytest.approx(5.0)
    assert len(set(part.runs) & set(study.frame["run_id"])) == 6


def test_saved_rounds_count_a_method_that_never_arrives_as_late() -> None:
    frame = join(
        *(trial("fedavg", s, 20.0, 30.0, 50.0) for s in range(3)),
        *(trial("fedcome", s, 20.0, 60.0, 65.0) for s in range(2)),
        trial("fedcome", 2, 20.0, 30.0, 40.0),
    )
    part = next(p for p in finding(select(frame), "sooner").parts if p.seeds)
    assert part.difference == pytest.approx((1 + 1 - 1) / 3)


@pytest.mark.parametrize("final", [70.02, 70.09, 70.13])  # 100 * x / 100 is above these x
def test_a_method_reaches_the_accuracy_that_it_ends_with(final: float) -> None:
    frame = join(*(trial(name, 0, 20.0, 30.0, final) for name in ("fedavg", "fedcome")))
    part = next(p for p in finding(select(frame), "sooner").parts if p.seeds)
    assert part.difference == 0


def test_no_rounds_are_saved_on_the_way_to_nan() -> None:
    frame = join(
        trial("fedavg", 0, 20.0, 30.0, float("nan")), trial("fedcome", 0, 20.0, 30.0, 40.0)
    )
    part = next(p for p in finding(select(frame), "sooner").parts if p.seeds)
    assert pd.isna(part.difference)


def test_the_papers_own_table_is_as_stable_as_the_paper() -> None:
    paper = paper_table("sensitivity")
    assert paper is not None
    frame = join(
        *(
            trial(
                "fedcome", seed, cell["paper"], grid="sensitivity",
                sampler__ema=cell["sampler.ema"],
                sampler__greedy_fraction=cell["sampler.greedy_fraction"],
            )
            for _, cell in paper.iterrows()
            for seed in range(3)
        )
    )  # fmt: skip
    found = finding(select(frame), "stable")
    assert found.parts[0].where.startswith("1.50 points")
    assert found.verdict == "reproduced"


def test_only_trials_with_the_same_rounds_and_data_are_compared() -> None:
    changes = {
        "grid": "controls", "method__match_norm": False, "method__clamp": None,
        "method__weights": "samples", "sampler__ema": 0.5, "sampler__variant": "clean",
    }  # fmt: skip
    long = join(
        seeds("fedcome", 69.5, 69.5, 69.5, **changes), seeds("fedavg", 70, 70, 70, **changes)
    )
    short = join(
        *(trial("fedcome", s, 20.0, 75.0, **changes) for s in range(3)),
        *(trial("fedavg", s, 20.0, 60.0, **changes) for s in range(3)),
    )
    part = finding(select(join(long, short)), "not-only-longer").parts[0]
    assert part.seeds == 3
    assert part.difference == pytest.approx(-0.5)


def test_conflicts_that_are_left_refute_the_claim() -> None:
    study = select(seeds("fedcome", 70.0, 71.0, 72.0))
    assert finding(study, "no-conflict-left").verdict == "reproduced"
    study.frame.loc[study.frame.index[4], "conflicts/after"] = 1.0
    assert finding(study, "no-conflict-left").verdict == "not reproduced"


def client_loss(last: float) -> Study:
    study = select(seeds("fedcome", 70.0, 71.0, 72.0, grid="client_loss", participation=1.0))
    rows = [
        {"run_id": run_id, "round": r, "client": c, "train_loss": loss, "test_loss": 0.0}
        for run_id in study.frame["run_id"].unique()
        for c in range(2)
        for r, loss in enumerate((3.0, 2.0, last if c else 1.0))
    ]
    return study._replace(clients=pd.DataFrame(rows))


def test_every_loss_must_fall_in_every_round() -> None:
    assert finding(client_loss(1.0), "loss-never-rises").verdict == "reproduced"
    assert finding(client_loss(2.5), "loss-never-rises").verdict == "not reproduced"
    assert finding(client_loss(2.5), "loss-ends-lower").verdict == "reproduced"


def test_a_client_that_diverges_refutes_that_losses_fall() -> None:
    study = client_loss(float("nan"))
    assert finding(study, "loss-never-rises").verdict == "not reproduced"
    assert finding(study, "loss-ends-lower").verdict == "not reproduced"


def test_every_claim_runs_on_a_study_without_its_trials() -> None:
    for grid, contents in CONTENTS.items():
        study = select(seeds("fednova", 70.0, grid=grid))
        for claim in contents.claims:
            assert finding(study, claim.name).verdict == "not enough runs"
