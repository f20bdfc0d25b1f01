"""What stands in the report: its first page, the paper's tables, the data of charts."""

import pandas as pd
import pytest

from analysis import charts, render, tables
from analysis.papers import papers_own_table
from analysis.profiles import MEANINGS, scopes
from analysis.publish import page_of, section_of
from analysis.scores import ACCURACY
from analysis.study import Study, select
from fedcome_ray.experiments.grid import PROFILES
from tests.analysis import synthetic
from tests.analysis.conftest import join, opened, seeds

LAST = ACCURACY["last"]


def own_paper_table(study: Study) -> tables.TextTable | None:
    return papers_own_table(study, tables.main_table(study, LAST))


def test_every_profile_says_what_it_can_tell() -> None:
    assert set(MEANINGS) == set(PROFILES)


def test_laptop_can_tell_whether_claims_hold_and_not_whether_numbers_are_reproduced() -> None:
    studies = [
        synthetic.study(grid, seeds=5, rounds=5, profile="laptop")
        for grid in ("partial_participation", "scaling")
    ]
    (scope,) = scopes(studies)
    rounds = studies[0].frame["rounds"].iloc[0]
    assert scope.what == f"Profile laptop: MNIST, model mlp, {rounds} rounds, 5 seeds"
    assert "Real MNIST stands in for the paper's CIFAR-10" in scope.meaning
    assert "can tell whether the paper's claims hold there" in scope.meaning
    assert "cannot tell whether the paper's numbers are reproduced" in scope.meaning


def test_what_is_the_papers_own_under_another_name_is_said() -> None:
    study = opened(seeds("fedcome", 95.0, profile="laptop", data__dataset="mnist"))
    (scope,) = scopes([study])
    assert scope.meaning.endswith(
        "The paper's own experiments are among them: Full participation on MNIST."
    )


def test_changed_settings_are_another_scope_that_judges_nothing() -> None:
    own = opened(seeds("fedcome", 70.0, data__dataset="cifar10"))
    changed = opened(seeds("fedcome", 70.0, grid="heterogeneity", rounds=3))
    first, second = scopes([own, changed])
    assert first.what.startswith("Profile paper (full_participation): CIFAR-10")
    assert second.what.startswith("Profile paper with rounds=3 (heterogeneity): CIFAR-10")
    assert second.meaning == "Not what the profile stands for, so it judges nothing."


def test_a_users_grid_has_nothing_in_the_paper() -> None:
    (scope,) = scopes([select(seeds("fedcome", 70.0, grid="own"))])
    assert "nothing in the paper" in scope.meaning


def test_other_data_have_the_papers_table_aside() -> None:
    table = own_paper_table(opened(seeds("fedcome", 90.0, profile="quick", data__dataset="digits")))
    assert table is not None
    assert list(table.texts) == ["method", "MNIST", "FEMNIST", "CIFAR-10", "CIFAR-100"]
    assert list(table.texts.set_index("method").loc["FedCOME"])[2] == "75.88 ± 0.36"
    assert "no difference" in table.caption


def test_a_paper_table_that_is_wholly_beside_ours_is_not_repeated() -> None:
    assert own_paper_table(synthetic.study("full_participation", seeds=1, rounds=5)) is None
    partly = synthetic.study("full_participation", seeds=1, rounds=5)
    frame = partly.frame[partly.frame["data.dataset"] == "mnist"]
    assert own_paper_table(partly._replace(frame=frame)) is not None


def test_a_grid_without_a_table_in_the_paper_has_none_aside() -> None:
    assert section_of(select(seeds("fedcome", 70.0, grid="own")), "last").paper is None


def test_columns_that_were_run_stand_first() -> None:
    study = opened(seeds("fedcome", 70.0, data__dataset="cifar10"))
    table = tables.main_table(study, LAST)
    others = table.cells.assign(state="not run", **{"data.dataset": "mnist"})
    both = pd.concat([others, table.cells], ignore_index=True)
    sheet = render.lay_out(
        tables.Table("x", "x", "", table.rows, table.column, both), render.MARKDOWN
    )
    assert [name for name in sheet.header if name in {"MNIST", "CIFAR-10"}] == ["CIFAR-10", "MNIST"]


def test_a_table_knows_how_narrow_it_can_be() -> None:
    texts = pd.DataFrame({"method": ["a & b", "FedCOME"], "value": ["72.10 ± 0.40", "not run"]})
    text = render.html_table(tables.TextTable("x", "x", "", texts))
    # FedCOME and ± 0.40 are the longest words, each with a letter of space.
    assert '<table style="--letters: 15">' in text


def test_settings_of_the_sampler_are_named() -> None:
    study = synthetic.study("sensitivity", seeds=1, rounds=5)
    sheet = render.lay_out(tables.main_table(study, LAST), render.MARKDOWN)
    assert [row[0] for row in sheet.blocks[0]] == [f"α = 0.{n}" for n in (1, 3, 5, 7, 9)]
    curves = charts.charts([study])["grids"]["sensitivity"]["test accuracy"]["all"]
    assert curves[-1]["label"] == "α = 0.9, μ = 0.9"


def test_curves_begin_with_the_initial_model_and_share_their_rounds() -> None:
    found = charts.charts([synthetic.study("full_participation", seeds=2, rounds=20)])
    panels = found["grids"]["full_participation"]["test accuracy"]
    assert [found["rounds"][panel[0]["rounds"]][0] for panel in panels.values()] == [0] * 4
    assert len({curve["rounds"] for curve in panels["MNIST"]}) == 1
    assert len(panels["MNIST"][0]["std"]) == len(panels["MNIST"][0]["mean"]) == 21


@pytest.mark.parametrize(("last", "expected"), [((70.0,), 0), ((70.0, 72.0), 3)])
def test_only_several_seeds_have_a_band(last: tuple[float, ...], expected: int) -> None:
    study = opened(seeds("fedcome", *last))
    (curve,) = charts.charts([study])["grids"]["full_participation"]["test accuracy"]["CIFAR-10"]
    assert len(curve["std"]) == expected


def test_long_curves_are_thinned_but_keep_their_ends() -> None:
    study = synthetic.study("full_participation", seeds=1, rounds=600)
    found = charts.charts([study])
    curve = found["grids"]["full_participation"]["test accuracy"]["CIFAR-100"][0]
    rounds = found["rounds"][curve["rounds"]]
    assert len(rounds) == charts.MOST_POINTS
    assert (rounds[0], rounds[-1]) == (0, 600)


def test_a_seed_that_diverged_is_a_gap() -> None:
    study = opened(join(seeds("fedcome", 70.0), seeds("fedcome", float("nan")).assign(seed=1)))
    (curve,) = charts.charts([study])["grids"]["full_participation"]["test accuracy"]["CIFAR-10"]
    assert curve["mean"] == [20.0, 40.0, None]


@pytest.mark.parametrize(("grid", "is_about_it"), [("own", False), ("full_participation", True)])
def test_a_page_of_a_users_grids_alone_is_not_about_the_paper(grid: str, is_about_it: bool) -> None:
    section = section_of(select(seeds("fedcome", 70.0, grid=grid)), "last")
    page = page_of([section], {}, is_all=True)
    assert bool(page.findings) is is_about_it
    assert ("paper" in page.title) is is_about_it
    assert bool(page.missing) is is_about_it
