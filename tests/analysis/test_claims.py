"""What the claims compare, on trials made by hand."""

from typing import Any

import pandas as pd
import pytest

from analysis import claims
from analysis.contents import CONTENTS, check_claims
from analysis.study import Study
from analysis.tables import accuracy_table, paper_table
from analysis.verdicts import Finding, Part
from fedcome_ray.methods import PAPER
from tests.analysis.conftest import join, opened, seeds, trial

NAN = float("nan")


def finding(study: Study, name: str) -> Finding:
    return next(f for f in check_claims({study.grid: study}) if f.claim.name == name)


def parts(study: Study, name: str) -> dict[str, Part]:
    return {part.where: part for part in finding(study, name).parts}


def three(method: str, accuracy: float, **changes: Any) -> pd.DataFrame:
    """Three seeds a tenth of a point apart."""
    return seeds(method, *(accuracy + 0.1 * s for s in range(3)), **changes)


def as_in_paper(grid: str) -> Study:
    """Every cell of one of the paper's tables, three seeds alike but for their common luck."""
    table = paper_table(grid)
    assert table is not None
    keys = [name for name in table if not name.startswith("paper")]
    cells = [
        (row.get("method.name", "fedcome"), row["paper"], {k: row[k] for k in keys})
        for _, row in table.iterrows()
    ]
    return opened(
        join(
            *(
                three(
                    method, accuracy, grid=grid, **{k.replace(".", "__"): v for k, v in own.items()}
                )
                for method, accuracy, own in cells
            )
        )
    )


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    tables = ("full_participation", "heterogeneity", "partial_participation", "sensitivity")
    return {grid: as_in_paper(grid) for grid in tables}


def test_the_papers_own_numbers_reproduce_every_claim_about_them(studies: dict[str, Study]) -> None:
    """All trials are the paper's, and differences have no spread to speak of."""
    found = {
        f.claim.name: f.verdict
        for f in check_claims(studies)
        if (f.claim.source or "").find("table") > 0
    }
    assert len(found) == 13
    assert set(found.values()) == {"reproduced"}


def test_every_claim_of_the_paper_says_where_it_is_made() -> None:
    for grid, contents in CONTENTS.items():
        for claim in contents.claims:
            assert (claim.source is None) == (grid == "controls")


def test_the_number_of_comparisons(studies: dict[str, Study]) -> None:
    found = {f.claim.name: len(f.parts) for f in check_claims(studies)}
    assert found["best-full"] == 3 * 6
    assert found["two-ahead"] == 3 * 2 * 5
    assert found["sampler-gain"] == 4 * 7
    assert found["best-with-sampler"] == 4 * 6
    assert found["stable"] == 2 * 9 * 8 / 2


def test_differences_of_the_papers_numbers(studies: dict[str, Study]) -> None:
    def mean(name: str, where: str) -> float:
        grid = next(g for g, c in CONTENTS.items() if name in {claim.name for claim in c.claims})
        return parts(studies[grid], name)[where].difference

    assert mean("best-full", "MNIST: FedCOME − FedDC") == pytest.approx(95.61 - 95.22)
    assert mean("random-few", "20 %: FedDyn − FedCOME") == pytest.approx(69.68 - 69.60)
    assert mean("femnist-comparable", "2 − (FEMNIST: FedDC − FedCOME)") == pytest.approx(2 - 0.95)
    assert mean("femnist-comparable", "2 − (FEMNIST: FedCOME − FedDC)") == pytest.approx(2 + 0.95)
    grows = "(2 classes: FedCOME − FedDyn) − (4 classes: FedCOME − FedDyn)"
    assert mean("lead-grows", grows) == pytest.approx(75.88 - 74.44 - (78.12 - 80.20))
    shrinks = "FedCOME's gain with up to 20 % − with more clients"
    assert mean("sampler-gain-shrinks", shrinks) == pytest.approx(2.77 - (0.87 + 0.15) / 2)
    pooled = finding(studies["partial_participation"], "sampler-gain").pooled
    assert pooled is not None
    assert pooled.difference == pytest.approx(20.83 / 28)


def test_settings_that_the_paper_calls_stable_differ_by_less_than_the_margin(
    studies: dict[str, Study],
) -> None:
    differences = [part.difference for part in finding(studies["sensitivity"], "stable").parts]
    assert min(differences) == pytest.approx(claims.MARGIN - 1.50)


def heterogeneity(methods: tuple[str, ...] = PAPER, **changes: Any) -> Study:
    trials = [
        three(
            method,
            75.0 if method == winner else 70.0,
            grid="heterogeneity",
            data__partition__classes=classes,
            **changes,
        )
        for classes, winner in ((2, "fedcome"), (3, "fedcome"), (4, "feddyn"))
        for method in methods
    ]
    return opened(join(*trials))


def test_a_missing_method_leaves_the_claim_open() -> None:
    found = finding(heterogeneity(("fedcome", "fedavg")), "best-heterogeneous")
    assert found.verdict == "open"
    assert "10 not run" in found.reason


def test_claims_can_be_checked_on_data_that_stand_in() -> None:
    study = heterogeneity()
    frame = study.frame.assign(**{"data.dataset": "mnist", "profile": "laptop"})
    found = check_claims({"heterogeneity": study._replace(frame=frame, papers=frozenset())})
    own = {f.claim.name: f.verdict for f in found if f.grid == "heterogeneity"}
    assert own["best-heterogeneous"] == own["feddyn-4-classes"] == "holds here"


def test_differences_are_paired_by_seed_and_name_their_runs() -> None:
    study = heterogeneity()
    part = finding(study, "best-heterogeneous").parts[0]
    assert part.seeds == 3
    assert part.difference == pytest.approx(5.0)
    assert len(set(part.runs) & set(study.frame["run_id"])) == 6


def test_claims_look_at_the_last_tenth_not_at_the_last_round() -> None:
    frame = join(
        *(trial("fedcome", s, *[60.0] * 18, 80.0, 60.0 + s) for s in range(3)),
        *(trial("fedavg", s, *[60.0] * 18, 60.0, 61.0 + s) for s in range(3)),
    )
    part = parts(opened(frame), "best-full")["CIFAR-10: FedCOME − FedAvg"]
    assert part.difference == pytest.approx(9.5)


def arrivals(*trials: pd.DataFrame) -> Part:
    return parts(opened(join(*trials)), "sooner")["CIFAR-10: rounds saved on FedAvg"]


def test_saved_rounds_count_a_method_that_never_arrives_as_late() -> None:
    part = arrivals(
        *(trial("fedavg", s, 20.0, 30.0, 50.0, rounds=3) for s in range(3)),
        *(trial("fedcome", s, 20.0, 60.0, 65.0, rounds=3) for s in range(2)),
        trial("fedcome", 2, 20.0, 30.0, 40.0, rounds=3),
    )
    assert part.difference == pytest.approx((1 + 1 - 1) / 3)


def test_rounds_are_saved_against_every_baseline() -> None:
    frame = join(
        trial("fedavg", 0, 20.0, 30.0, 50.0, rounds=3),
        trial("feddc", 0, 55.0, 30.0, 50.0, rounds=3),
        trial("fedcome", 0, 20.0, 60.0, 65.0, rounds=3),
    )
    found = parts(opened(frame), "sooner")
    assert len(found) == 6
    assert found["CIFAR-10: rounds saved on FedDC"].difference == -1
    assert found["CIFAR-10: rounds saved on FedProx"].seeds == 0


@pytest.mark.parametrize("final", [70.02, 70.09, 70.13])  # 100 * x / 100 is above these x
def test_a_method_reaches_the_accuracy_that_it_ends_with(final: float) -> None:
    part = arrivals(*(trial(name, 0, 20.0, 30.0, final) for name in ("fedavg", "fedcome")))
    assert part.difference == 0


def test_no_rounds_are_saved_on_the_way_to_nan() -> None:
    part = arrivals(trial("fedavg", 0, 20.0, 30.0, NAN), trial("fedcome", 0, 20.0, 30.0, 40.0))
    assert pd.isna(part.difference)


Accuracies = dict[float, tuple[float, ...]]  # by server rate


def controls(tested: Accuracies, held_out: Accuracies, **fedcome: Any) -> Study:
    return opened(
        join(
            seeds("fedcome", 70.0, 70.0, 70.0, grid="controls", **fedcome),
            *(
                seeds("fedavg", *own, grid="controls", method__server_lr=rate, **side)
                for rates, side in ((tested, {}), (held_out, {"data__validation": 0.1}))
                for rate, own in rates.items()
            ),
        )
    )


def test_the_server_rate_is_tuned_on_held_out_examples_seed_by_seed() -> None:
    study = controls(
        {1.0: (60.0, 61.0, 62.0), 2.0: (63.0, 64.0, 65.0)},
        {1.0: (50.0, 90.0, 90.0), 2.0: (80.0, 80.0, NAN)},
    )
    found = finding(study, "not-only-longer")
    assert found.pooled is not None
    assert found.pooled.difference == pytest.approx(((70 - 63) + (70 - 61) + (70 - 62)) / 3)
    assert found.pooled.seeds == 3
    assert found.verdict == "holds here"


def test_held_out_and_test_accuracies_are_not_ranked_together() -> None:
    study = controls({1.0: (60.0, 61.0, 62.0)}, {1.0: (90.0, 90.0, 90.0)})
    table = accuracy_table(study, "last")
    ranks = table.cells.set_index("setting").loc["validation=10 % held out", "rank"]
    assert ranks == 1
    assert (table.cells["rank"] == 1).sum() == 2
    assert "where so marked, on held-out training examples" in table.caption


def test_fedcome_is_compared_uncut_and_with_the_same_sampler() -> None:
    rates = {1.0: (60.0, 61.0, 62.0)}
    for other in ({"method__clamp": 0.005}, {"sampler__ema": 0.7}, {"method__match_norm": True}):
        assert not finding(controls(rates, rates, **other), "not-only-longer").parts
    part = finding(controls(rates, rates, method__match_norm=True), "equal-length").parts[0]
    assert part.difference == pytest.approx(9.0)


def test_conflicts_that_are_left_refute_the_claim() -> None:
    study = opened(three("fedcome", 70.0))
    assert finding(study, "no-conflict-left").verdict == "reproduced"
    study.frame.loc[study.frame.index[4], "conflicts/after"] = 1.0
    assert finding(study, "no-conflict-left").verdict == "not reproduced"


def client_loss(*losses: float, share: float = 1.0) -> Study:
    sampler = "similarity" if share < 1 else "random"
    changes = {"grid": "client_loss", "participation": share, "sampler__name": sampler}
    study = opened(three("fedcome", 70.0, **changes))
    rows = [
        {"run_id": run_id, "round": r, "client": c, "train_loss": loss, "test_loss": 0.0}
        for run_id in study.frame["run_id"].unique()
        for c in range(2)
        for r, loss in enumerate(losses if c else (9.0, 8.0, 7.0))
    ]
    return study._replace(clients=pd.DataFrame(rows))


def losses_verdicts(study: Study) -> dict[str, str]:
    return {f.claim.name: f.verdict for f in check_claims({"client_loss": study})}


def test_every_loss_must_fall_in_every_round() -> None:
    found = losses_verdicts(client_loss(3.0, 2.0, 1.0))
    assert found["loss-never-rises"] == found["loss-ends-lower"] == "reproduced"
    found = losses_verdicts(client_loss(3.0, 2.0, 2.5))
    assert found["loss-never-rises"] == "not reproduced"
    assert found["loss-ends-lower"] == "reproduced"
    assert found["partial-loss-never-rises"] == "not judged"


def test_the_step_from_the_initial_model_counts() -> None:
    assert losses_verdicts(client_loss(1.5, 2.0, 1.0))["loss-never-rises"] == "not reproduced"


def test_losses_must_also_fall_with_part_of_the_clients() -> None:
    found = losses_verdicts(client_loss(3.0, 2.0, 2.5, share=0.2))
    assert found["partial-loss-never-rises"] == "not reproduced"
    assert found["partial-loss-ends-lower"] == "reproduced"
    assert found["loss-never-rises"] == "not judged"


def test_a_client_that_diverges_refutes_that_losses_fall() -> None:
    found = losses_verdicts(client_loss(3.0, 2.0, NAN))
    assert found["loss-never-rises"] == found["loss-ends-lower"] == "not reproduced"


def test_every_claim_runs_on_a_study_without_its_trials() -> None:
    for grid, contents in CONTENTS.items():
        study = opened(seeds("fednova", 70.0, grid=grid))
        for claim in contents.claims:
            assert finding(study, claim.name).verdict == "not judged"


def test_comparisons_are_a_table_for_programs(studies: dict[str, Study]) -> None:
    found = check_claims(studies)
    table = claims.comparisons(found)
    num_pooled = sum(f.pooled is not None for f in found)
    assert len(table) == sum(len(f.parts) for f in found) + num_pooled
    assert {"p_holds", "p_fails", "decision"} < set(table)
