"""Tables against numbers computed by hand."""

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from analysis import render, scores, tables
from analysis.contents import contents_of
from analysis.curves import curves
from analysis.scores import ACCURACY
from analysis.study import select, with_references
from fedcome_ray.experiments.trial import YOUNGER
from tests.analysis.conftest import join, opened, seeds, trial

GOLDEN = Path(__file__).parent / "golden"
LAST = ACCURACY["last"]


def cell(table: tables.Table, **keys: object) -> "pd.Series":
    cells = table.cells
    for key, value in keys.items():
        cells = cells[cells[key.replace("__", ".")] == value]
    assert len(cells) == 1
    return cells.iloc[0]


@pytest.fixture(scope="module")
def golden_table() -> tables.Table:
    """The export has uneven data on purpose: a failed trial, a NaN, a seed less, a method more.

    The expected files were written by the code and then checked by hand, cell by cell.
    """
    frame = pd.read_csv(GOLDEN / "export.csv", dtype={"dirty": str, "experiment_id": str})
    frame = frame.assign(**{name: YOUNGER[name] for name in YOUNGER.keys() - {*frame.columns}})
    return tables.main_table(opened(frame), LAST)


def test_golden_cells(golden_table: tables.Table) -> None:
    ours, expected = (
        pd.read_csv(StringIO(render.csv(golden_table))),
        pd.read_csv(GOLDEN / "cells.csv"),
    )
    pd.testing.assert_frame_equal(ours, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kind", "write"), [("md", render.markdown), ("tex", render.latex)])
def test_golden_texts(golden_table: tables.Table, kind: str, write: object) -> None:
    assert write(golden_table) == (GOLDEN / f"table.{kind}").read_text(encoding="utf-8")


def test_a_cell_is_mean_and_sample_deviation_over_seeds_beside_the_paper() -> None:
    table = tables.main_table(opened(seeds("fedcome", 70.0, 72.0, 74.0)), LAST)
    own = cell(table, method__name="fedcome", data__dataset="cifar10")
    assert (own["mean"], own["std"], own["seeds"]) == pytest.approx((72.0, 2.0, 3))
    assert own["paper"] == 75.88
    assert own["difference"] == pytest.approx(72.0 - 75.88)


def test_the_best_is_bold_and_the_runner_up_underlined() -> None:
    frame = join(seeds("fedavg", 60.0), seeds("feddyn", 70.0), seeds("fedcome", 80.0))
    text = render.markdown(tables.main_table(select(frame), LAST))
    assert "| **80.00** |" in text
    assert "| <u>70.00</u> |" in text
    assert "| 60.00 |" in text


def test_profiles_are_never_mixed_and_the_largest_is_shown() -> None:
    frame = join(seeds("fedcome", 90.0, profile="quick"), seeds("fedcome", 70.0))
    table = tables.main_table(select(frame), LAST)
    assert cell(table, method__name="fedcome", data__dataset="cifar10")["mean"] == 70.0
    assert "profile paper" in table.caption
    assert "not shown: profile quick" in table.caption


def test_trials_with_other_settings_are_set_aside_and_shown_there() -> None:
    short = trial("fedcome", 1, 90.0, rounds=1)
    study = select(join(seeds("fedcome", 70.0), short))
    table = tables.main_table(study, LAST)
    assert cell(table, method__name="fedcome", data__dataset="cifar10")["mean"] == 70.0
    assert "1 with other settings set aside" in table.caption
    aside = tables.aside_table(study, "last")
    assert aside is not None
    assert cell(aside, method__name="fedcome", changes="rounds=1")["mean"] == 90.0


def test_a_failed_trial_is_not_averaged_but_marked_and_counted() -> None:
    failed = trial("fedavg", 1, status="FAILED")
    frame = join(seeds("fedavg", 60.0), failed, seeds("fedcome", 70.0, 72.0))
    table = tables.main_table(select(frame), LAST)
    assert "<u>60.00</u> [1] |" in render.markdown(table)
    assert "1 failed" in table.caption


def test_a_longer_trial_that_failed_does_not_hide_finished_ones() -> None:
    frame = join(seeds("fedcome", 70.0), trial("fedcome", 0, status="FAILED", rounds=9))
    table = tables.main_table(select(frame), LAST)
    assert cell(table, method__name="fedcome", data__dataset="cifar10")["mean"] == 70.0


def test_a_grid_may_be_run_without_the_setting_of_its_columns() -> None:
    settings = {"grid": "heterogeneity", "data__partition__classes": None}
    table = tables.main_table(select(seeds("fedcome", 70.0, **settings)), LAST)
    assert table.cells["mean"].max() == 70.0


@pytest.mark.parametrize(
    ("status", "word"), [("FAILED", "failed"), ("KILLED", "interrupted"), ("RUNNING", "running")]
)
def test_a_cell_without_a_finished_trial_says_why(status: str, word: str) -> None:
    frame = join(seeds("fedcome", 70.0), trial("fedavg", 0, status=status))
    table = tables.main_table(opened(frame), LAST)
    assert cell(table, method__name="fedavg", data__dataset="cifar10")["state"] == word
    assert cell(table, method__name="feddc", data__dataset="cifar10")["state"] == "not run"


def test_a_diverged_seed_makes_the_cell_nan_and_never_the_best() -> None:
    frame = join(seeds("fedavg", 60.0, float("nan")), seeds("fedcome", 50.0, 50.0))
    text = render.markdown(tables.main_table(select(frame), LAST))
    assert "| NaN |" in text
    assert "**50.00 ± 0.00**" in text


@pytest.mark.parametrize(
    "changes",
    [{"data__dataset": "digits"}, {"rounds": 3}, {"local__lr": 0.1}, {"profile": "mini"}],
)
def test_the_papers_numbers_stand_beside_the_papers_trials_only(changes: dict[str, object]) -> None:
    frame = seeds("fedcome", 90.0, grid="heterogeneity", **changes)
    table = tables.main_table(opened(frame), LAST)
    own = cell(table, method__name="fedcome", data__partition__classes=2)
    assert own["mean"] == 90.0
    assert pd.isna(own["paper"])
    assert pd.isna(own["difference"])
    assert "paper" not in render.markdown(table).splitlines()[2]


def test_the_papers_trials_are_known_under_the_name_of_another_profile() -> None:
    frame = seeds("fedcome", 96.0, profile="mini", data__dataset="mnist")
    own = cell(tables.main_table(opened(frame), LAST), method__name="fedcome")
    assert own["difference"] == pytest.approx(96.0 - 95.61)


def test_methods_that_the_paper_has_not_come_in_a_block_of_their_own() -> None:
    frame = join(seeds("fednova", 90.0), seeds("fedcome", 70.0))
    table = tables.main_table(select(frame), LAST)
    assert "*not in the paper*" in render.markdown(table)
    assert render.latex(table).count(r"\midrule") == 2
    assert render.html_table(table).count("<tbody>") == 2


def test_a_grid_of_a_user_has_a_row_for_each_setting() -> None:
    frame = join(
        *(seeds("fedavg", 60.0 + lr, grid="mine", method__server_lr=lr) for lr in (1.0, 2.0, 3.0))
    )
    table = tables.main_table(select(frame), LAST)
    assert list(table.cells["setting"]) == ["server_lr=1", "server_lr=2", "server_lr=3"]
    assert list(table.cells["rank"]) == [3, 2, 1]


def test_a_row_leaves_out_the_settings_that_come_with_its_dataset() -> None:
    synthetic = {
        "data__dataset": "synthetic",
        "data__alpha": 1.0,
        "data__test_split": None,
        "data__partition__classes": None,
        "model__name": "logistic",
    }
    frame = join(
        seeds("fedavg", 60.0, grid="mine", model__name="mlp", model__hidden="[32]"),
        seeds("fedavg", 61.0, grid="mine", **synthetic),
    )
    (images, numbers) = tables.main_table(select(frame), LAST).cells["setting"]
    assert set(images.split()) == {"dataset=CIFAR-10", "model=mlp"}
    assert set(numbers.split()) == {"dataset=synthetic", "model=logistic"}


def test_a_row_names_a_setting_of_the_same_dataset_that_others_have_not() -> None:
    frame = join(
        seeds("fedavg", 60.0, grid="mine", data__validation=None, rounds=3),
        seeds("fedavg", 61.0, grid="mine", data__validation=0.1, rounds=4),
    )
    table = tables.main_table(select(frame), LAST)
    assert any("validation=10 % held out" in words for words in table.cells["setting"])


@pytest.mark.parametrize(("at", "value"), [("last", 50.0), ("best", 80.0), ("tail", 52.5)])
def test_the_round_that_counts_can_be_chosen(at: str, value: float) -> None:
    accuracies = [80.0, *[1.0] * 17, 55.0, 50.0]
    study = select(trial("fedcome", 0, *accuracies, rounds=20))
    scored = scores.score(study.frame, ACCURACY[at])
    assert scored["value"].iloc[0] == pytest.approx(value)


@pytest.mark.parametrize(
    ("grid", "best"),
    [
        ("full_participation", {"mnist": "fedcome", "femnist": "feddc", "cifar100": "fedcome"}),
        ("heterogeneity", {2: "fedcome", 3: "fedcome", 4: "feddyn"}),
    ],
)
def test_the_paper_numbers_have_the_winners_that_it_prints_bold(
    grid: str, best: dict[object, str]
) -> None:
    paper = tables.paper_table(grid)
    column = {"full_participation": "data.dataset"}.get(grid, "data.partition.classes")
    for value, method in best.items():
        own = paper[paper[column] == value]
        assert own.loc[own["paper"].idxmax(), "method.name"] == method


def test_the_sampler_gains_in_all_28_cells_of_the_paper() -> None:
    paper = tables.paper_table("partial_participation")
    wide = paper.pivot(
        index=["method.name", "participation"], columns="sampler.name", values="paper"
    )
    gain = wide["similarity"] - wide["random"]
    assert len(gain) == 28
    assert gain.min() == pytest.approx(0.07)
    assert gain.max() == pytest.approx(2.77)


def test_the_search_space_says_what_was_tried_and_best() -> None:
    frame = join(
        *(seeds("fedprox", 60 + mu, grid="search", method__mu=mu) for mu in (0.001, 0.01, 0.1))
    )
    texts = tables.search_space_table(select(frame)).texts.set_index("method")
    assert texts.loc["FedProx", "tried here"] == "0.001, 0.01, 0.1"
    assert texts.loc["FedProx", "best here"] == "0.1"
    assert texts.loc["FedDC", "best here"] in {"not run", "–"}


def test_dataset_sizes_come_from_the_stored_population() -> None:
    study = select(seeds("fedcome", 70.0))
    population = pd.DataFrame(
        {"client": [0, 1], "num_train": [10, 30], "num_test": [2, 4], "classes": ["0 1", "2"]}
    )
    study = study._replace(population=population.assign(run_id=study.frame["run_id"].iloc[0]))
    texts = tables.datasets_table([study]).texts
    ours = texts[(texts["dataset"] == "CIFAR-10") & (texts["source"] == "ours")].iloc[0]
    assert list(ours[2:]) == ["40", "6", "3", "2", "20", "3", "2"]
    assert (texts.loc[texts["source"] == "ours", "train"] == "not run").sum() == 3


def test_a_metric_that_nobody_named_is_tabled_by_method() -> None:
    momentum = "server/momentum_norm"
    frame = join(
        seeds("fedavg", 70.0, 72.0).assign(**{momentum: [9.0, 9.0, 0.2, 9.0, 9.0, 0.4]}),
        seeds("fedcome", 74.0),
    )
    table = tables.other_metrics_table(select(frame), shown={"accuracy/test"})
    assert table is not None
    texts = table.texts.set_index("metric")
    assert texts.loc[momentum].to_dict() == {"FedAvg": "0.3", "FedCOME": "–"}
    assert "accuracy/test" not in texts.index
    assert "seconds/round" in texts.index


def test_a_trial_that_diverged_shows_in_the_other_metrics() -> None:
    frame = seeds("fedavg", 70.0, 72.0).assign(**{"server/norm": [1.0] * 5 + [float("nan")]})
    table = tables.other_metrics_table(select(frame), shown=set())
    assert table is not None
    assert table.texts.set_index("metric").loc["server/norm", "FedAvg"] == "NaN"


def test_there_is_no_table_of_other_metrics_if_all_are_shown() -> None:
    study = select(seeds("fedavg", 70.0))
    assert tables.other_metrics_table(study, shown=set(study.frame.columns)) is None


def test_the_cost_of_a_round_is_what_the_table_of_scaling_compares() -> None:
    (make,) = contents_of("scaling").tables
    table = make(select(seeds("fedcome", 70.0, grid="scaling")), "last")
    assert table is not None
    assert table.caption.startswith("Seconds per round")


def test_the_fairness_indices_need_every_clients_results() -> None:
    study = select(seeds("fedcome", 70.0, grid="fairness"))
    assert tables.fairness_table(study, "last") is None


def test_the_caption_says_that_trials_were_computed_differently() -> None:
    alike = {"cpu": "one", "device": "cpu", "company": "independent", "portable": "false"}
    frames = [
        trial("fedcome", seed, 30.0, 70.0, arithmetic=json.dumps({**alike, "aten": aten}))
        for seed, aten in enumerate(("AVX2", "AVX512"))
    ]
    text = tables.caption_of(select(join(*frames)))
    assert "not all computed alike (aten: AVX2 | AVX512)" in text


def test_versions_of_a_plugin_are_methods_of_their_own() -> None:
    frame = join(
        trial("momentum", 0, 69.0, plugin="1a2b3c" * 10),
        trial("momentum", 0, 81.0, plugin="4d5e6f" * 10),
        seeds("fedavg", 70.0),
    )
    study = select(frame)
    cells = tables.main_table(study, LAST).cells.set_index("method.name")
    assert cells["mean"].to_dict() == {
        "fedavg": 70.0, "momentum@1a2b3c": 69.0, "momentum@4d5e6f": 81.0,
    }  # fmt: skip
    assert set(curves(study, "accuracy/test")["label"]) >= {"momentum@1a2b3c", "momentum@4d5e6f"}


def test_a_plugin_of_one_version_keeps_its_name() -> None:
    frame = join(*(trial("momentum", s, 69.0, plugin="1a2b3c" * 10) for s in range(2)))
    cells = tables.main_table(select(frame), LAST).cells
    assert list(cells["method.name"]) == ["momentum"]
    assert list(cells["seeds"]) == [2]


def test_trials_are_ranked_among_those_of_equal_length() -> None:
    frame = join(
        *(
            trial(method, 0, *[20.0] * (rounds - 1), accuracy, grid="mine")
            for method, rounds, accuracy in (
                ("fedavg", 2, 60.0), ("fedprox", 2, 61.0), ("fedcome", 4, 90.0),
            )
        )
    )  # fmt: skip
    table = tables.main_table(select(frame), LAST)
    assert table.cells.set_index("method.name")["rank"].to_dict() == {
        "fedavg": 2, "fedprox": 1, "fedcome": 1,
    }  # fmt: skip
    text = render.markdown(table)
    assert "**90.00** (4 rounds)" in text
    assert "**61.00** (2 rounds)" in text
    assert "Lengths differ" in table.caption


def test_lengths_that_belong_to_the_columns_are_not_marked() -> None:
    frame = join(seeds("fedcome", 70.0), seeds("fedcome", 96.0, data__dataset="mnist"))
    table = tables.main_table(select(frame), LAST)
    assert table.cells["rounds"].nunique() == 2
    assert not table.cells["length"].any()


def test_set_aside_trials_with_unlike_settings_are_not_averaged() -> None:
    frame = join(
        seeds("fedcome", 70.0),
        trial("fedcome", 0, 20.0, 80.0, rounds=2),
        trial("fedcome", 0, float("nan"), 90.0, rounds=2, eval_every=2),
    )
    aside = tables.aside_table(select(frame), "last")
    assert aside is not None
    assert set(aside.cells["mean"]) == {80.0, 90.0}
    assert aside.cells["changes"].str.startswith("rounds=2").all()


def test_trials_that_stopped_early_say_where_and_compete_by_one_rule_only() -> None:
    rule = {"grid": "a_users_grid", "rounds": 9, "stop__metric": "accuracy/test"}
    frame = join(
        trial("fedavg", 0, 20.0, 60.0, 50.0, **rule, stop__patience=1),
        trial("fedavg", 1, 20.0, 30.0, 70.0, 60.0, **rule, stop__patience=1),
        trial("feddc", 0, 20.0, 80.0, 70.0, **rule, stop__patience=1),
        trial("fedcome", 0, *range(10, 100, 10), **rule, stop__patience=5),
    )
    table = tables.main_table(select(frame), ACCURACY["last"])
    cells = table.cells.set_index("method.name")
    assert cells["mean"].to_dict() == pytest.approx(
        {"fedavg": 55.0, "feddc": 70.0, "fedcome": 90.0}
    )
    assert cells["tail"].to_dict() == pytest.approx(
        {"fedavg": 55.0, "feddc": 70.0, "fedcome": 90.0}
    )
    assert cells["length"].to_dict() == {
        "fedavg": "stopped at round 3 to 4",
        "feddc": "stopped at round 3",
        "fedcome": "",
    }
    assert cells["rank"].to_dict() == {"fedavg": 2, "feddc": 1, "fedcome": 1}
    assert "stopped by one rule" in table.caption


def test_a_curve_ends_where_its_first_seed_stopped() -> None:
    rule = {"grid": "a_users_grid", "rounds": 9, "stop__patience": 1}
    frame = join(
        trial("fedavg", 0, 20.0, 60.0, 50.0, **rule),
        trial("fedavg", 1, 20.0, 40.0, 70.0, 60.0, **rule),
    )
    table = curves(select(frame), "accuracy/test")
    assert list(table["mean"]) == pytest.approx([20.0, 50.0, 60.0])


def test_references_stand_below_the_methods_and_do_not_compete() -> None:
    frame = join(
        seeds("local", 20.0), seeds("centralised", 99.0), seeds("fedcome", 70.0), seeds("own", 60.0)
    )
    study = select(frame)
    table = tables.main_table(study, LAST)
    rows = table.cells[table.cells["state"] != "not run"].set_index("method.name")
    assert list(rows.index) == ["fedcome", "own", "centralised", "local"]
    assert rows["rank"].fillna(0).tolist() == [1, 2, 0, 0]
    assert rows["paper"].notna().tolist() == [False] * 4
    text = render.markdown(table)
    assert "| **70.00** |" in text
    assert text.index("*not in the paper*") < text.index("*references*") < text.index("99.00")
    assert "References are not ranked" in text
    assert set(study.frame["method.name"]) == {"fedcome", "own"}, "nor are claims about them"


def test_a_grid_of_references_alone_is_about_them() -> None:
    study = select(join(seeds("local", 20.0), seeds("centralised", 99.0)))
    assert study.references.empty
    cells = tables.main_table(study, LAST).cells
    assert cells["rank"].isna().all()


def test_the_grid_of_references_serves_the_tables_of_others() -> None:
    here = {"grid": "partial_participation", "sampler__name": "random"}
    study = select(
        join(
            seeds("fedcome", 70.0, participation=0.1, **here),
            seeds("fedcome", 75.0, participation=0.2, **here),
        )
    )
    there = {"grid": "references", "sampler__name": "random"}
    fitting = seeds("local", 20.0, participation=0.1, **there)
    others = join(
        seeds("local", 30.0, participation=0.3, **there),  # not run with any method
        seeds("local", 40.0, participation=0.2, **{**there, "rounds": 5}),
        seeds("local", 50.0, participation=0.2, **{**there, "profile": "mini"}),
    )
    found = with_references(study, join(fitting, others)).references
    assert set(found["run_id"]) == set(fitting["run_id"])
