"""Who beats whom, counted by hand."""

import pandas as pd
import pytest

from analysis import render
from analysis.contents import contents_of
from analysis.wins import count, win_table, wins_of
from tests.analysis.conftest import join, opened, seeds, trial

NAN = float("nan")


def result(table: pd.DataFrame, method: str, other: str) -> tuple[int, ...]:
    own = table[(table["method"] == method) & (table["other"] == other)]
    assert len(own) == 1
    return tuple(own.iloc[0][["won", "lost", "tied"]])


def three(*last: float) -> pd.DataFrame:
    return join(seeds("fedavg", *last), seeds("feddyn", 1.0, 2.0), seeds("fedcome", 80.0, 80.0))


def test_pairs_meet_where_both_are_there() -> None:
    meetings = pd.DataFrame({"A": [1.0, 2.0, NAN, 4.0], "B": [0.0, 2.0, 9.0, 5.0]})
    counts = count(meetings)
    assert result(counts, "A", "B") == (1, 1, 1)
    assert result(counts, "B", "A") == (1, 1, 1)
    assert list(counts["share"]) == [0.5, 0.5]


def test_a_tie_is_half_a_win_for_each() -> None:
    table = wins_of(opened(three(80.0, 70.0)), "last")
    assert result(table.counts, "FedCOME", "FedAvg") == (1, 0, 1)
    texts = table.texts.set_index("method")
    assert texts.loc["FedCOME", "FedAvg"] == "75 % (1:0:1)"
    assert texts.loc["FedAvg", "FedCOME"] == "25 % (0:1:1)"
    assert texts.loc["FedCOME", "FedCOME"] == ""


def test_the_best_comes_first_and_is_summed_up() -> None:
    table = wins_of(opened(three(70.0, 71.0)), "last")
    assert list(table.texts["method"]) == ["FedCOME", "FedAvg", "FedDyn"]
    assert list(table.texts.columns) == ["method", "FedCOME", "FedAvg", "FedDyn", "all others"]
    assert list(table.texts["all others"]) == ["100 % (4:0)", "50 % (2:2)", "0 % (0:4)"]


def test_to_have_met_the_weak_more_often_is_no_advantage() -> None:
    strong, weak = seeds("fedcome", 80.0, 80.0), seeds("feddyn", 1.0, 2.0)
    often = join(seeds("fedavg", 70.0), trial("fedavg", 1, 20.0, 40.0, 71.0))
    once = join(strong[strong["seed"] == 0], weak, often)
    texts = wins_of(opened(once), "last").texts.set_index("method")
    assert texts.loc["FedAvg", "FedDyn"] == "100 % (2:0)"
    assert texts.loc["FedAvg", "FedCOME"] == "0 % (0:1)"
    assert texts.loc["FedAvg", "all others"] == "50 % (2:1)"


def test_what_was_not_run_or_failed_is_not_counted() -> None:
    failed = trial("fedavg", 1, 90.0, 90.0, 90.0, status="FAILED")
    frame = join(seeds("fedavg", 70.0), failed, three(70.0, 71.0).iloc[6:])
    table = wins_of(opened(frame), "last")
    assert result(table.counts, "FedAvg", "FedCOME") == (0, 1, 0)


def test_a_trial_that_diverged_loses() -> None:
    table = wins_of(opened(three(NAN, 90.0)), "last")
    assert result(table.counts, "FedAvg", "FedDyn") == (1, 1, 0)


def test_trials_of_another_length_do_not_meet() -> None:
    short = join(*(trial("fedavg", s, 99.0, grid="own", rounds=1) for s in range(2)))
    long = [seeds(name, 70.0, 71.0, grid="own") for name in ("feddyn", "fedcome")]
    assert wins_of(opened(join(short, *long)), "last") is None


def test_two_methods_are_no_contest() -> None:
    frame = join(seeds("fedavg", 60.0), seeds("fedcome", 70.0))
    assert wins_of(opened(frame), "last") is None


def test_a_trial_that_two_grids_share_counts_once() -> None:
    frame = three(70.0, 71.0)
    again = frame.assign(grid="heterogeneity", run_id=frame["run_id"] + "b")
    table = win_table([opened(frame), opened(again)], "wins", "both")
    assert result(table.counts, "FedCOME", "FedAvg") == (2, 0, 0)


def test_programs_get_counts_and_the_page_is_coloured_by_shares() -> None:
    table = wins_of(opened(three(70.0, 71.0)), "last")
    assert render.csv(table).splitlines()[:2] == [
        "method,other,won,lost,tied,share",
        "FedAvg,FedDyn,2,0,0,1.0",
    ]
    assert '<td class="share" style="--share: 1.00">100 % (2:0)</td>' in render.html_table(table)


@pytest.mark.parametrize(("grid", "has"), [("partial_participation", True), ("scaling", False)])
def test_only_grids_that_compare_accuracies_have_it(grid: str, has: bool) -> None:
    assert (wins_of in contents_of(grid).tables) == has
