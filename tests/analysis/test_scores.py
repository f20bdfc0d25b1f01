import numpy as np
import pandas as pd
import pytest

from analysis import scores
from analysis.curves import curves
from analysis.study import select
from tests.analysis.conftest import join, seeds, trial


def test_fairness_indices_of_a_hand_computed_example() -> None:
    index = scores.fairness_indices(np.array([20.0, 40.0, 60.0, 80.0]))
    assert index["mean"] == 50.0
    assert index["std"] == pytest.approx(500**0.5)
    assert (index["worst 10 %"], index["best 10 %"]) == (20.0, 80.0)
    assert index["Jain"] == pytest.approx(200**2 / (4 * 12000))
    assert index["Gini"] == pytest.approx(0.25)  # mean difference of all pairs over twice the mean


def test_all_clients_alike_are_perfectly_fair() -> None:
    index = scores.fairness_indices(np.full(7, 60.0))
    assert (index["Jain"], index["Gini"]) == pytest.approx((1.0, 0.0))


def test_nobody_served_at_all_has_no_index() -> None:
    assert np.isnan(scores.fairness_indices(np.zeros(3))["Jain"])


def test_rounds_to_a_target_count_from_one_and_may_never_be_reached() -> None:
    frame = join(
        trial("fedcome", 0, 20.0, 60.0, 50.0, rounds=3),
        trial("fedavg", 0, 20.0, 30.0, 40.0, rounds=3),
    )
    assert scores.rounds_to(frame, 55.0).fillna(-1).tolist() == [2, -1]


def test_rounds_without_evaluation_are_no_results() -> None:
    nan = float("nan")
    frame = trial("fedcome", 0, *[nan, 10.0] * 19, nan, 60.0, 70.0, eval_every=2)
    assert frame["round"].max() == 41  # of which 37, 38, 39, 40 and 41 are the last tenth
    assert scores.tail(frame).iloc[0] == pytest.approx((10 + 60 + 70) / 3)


def test_a_nan_in_the_last_tenth_stays_and_one_before_it_does_not_count() -> None:
    nan = float("nan")
    early, late = [40.0, nan, *[50.0] * 18], [*[40.0] * 18, nan, 50.0]
    assert scores.tail(trial("fedcome", 0, *early, rounds=20)).iloc[0] == 50.0
    assert np.isnan(scores.tail(trial("fedcome", 0, *late, rounds=20)).iloc[0])


def test_the_tail_has_at_least_the_last_round() -> None:
    assert scores.tail(trial("fedcome", 0, 40.0, 60.0, rounds=2)).iloc[0] == 60.0


def test_losses_that_rise_are_counted_by_step_and_by_client() -> None:
    clients = pd.DataFrame(
        {
            "round": [0, 0, 1, 1, 2, 2],
            "client": [0, 1, 0, 1, 0, 1],
            "train_loss": [3.0, 3.0, 2.0, 4.0, 1.0, 3.5],
            "test_loss": 0.0,
        }
    )
    losses = scores.client_losses(clients, scores.loss_metric(clients))
    assert scores.share_of_steps_up(losses) == 0.25
    assert scores.share_of_clients_up(losses) == 0.5


def test_a_loss_that_becomes_nan_has_risen() -> None:
    losses = pd.DataFrame({0: [3.0, 2.0, float("nan")], 1: [3.0, 2.0, 1.0]})
    assert scores.share_of_steps_up(losses) == 0.25
    assert scores.share_of_clients_up(losses) == 0.5


def test_one_evaluation_says_nothing_about_rises() -> None:
    assert np.isnan(scores.share_of_steps_up(pd.DataFrame({0: [3.0]})))
    assert np.isnan(scores.share_of_clients_up(pd.DataFrame({0: [3.0]})))


def test_losses_on_test_examples_stand_in_if_no_trial_recorded_the_others() -> None:
    clients = pd.DataFrame({"train_loss": [float("nan")], "test_loss": [1.0]})
    assert scores.loss_metric(clients) == "test_loss"
    assert scores.loss_metric(clients.assign(train_loss=2.0)) == "train_loss"


def test_curves_are_means_over_seeds_in_percent() -> None:
    table = curves(select(seeds("fedcome", 70.0, 72.0, 74.0)), "accuracy/test")
    last = table.iloc[-1]
    assert (last["panel"], last["label"], last["seeds"]) == ("CIFAR-10", "FedCOME", 3)
    assert (last["mean"], last["std"]) == pytest.approx((72.0, 2.0))


def test_a_diverged_seed_leaves_a_gap_in_the_curve() -> None:
    table = curves(select(seeds("fedcome", 70.0, float("nan"))), "accuracy/test")
    assert table["mean"].isna().tolist() == [False, False, True]


def test_a_metric_that_nobody_recorded_has_no_curve() -> None:
    assert curves(select(seeds("fedavg", 70.0)), "server/step_ratio").empty
