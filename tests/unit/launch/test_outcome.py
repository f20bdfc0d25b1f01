"""How a launch ended, as an exit code and as time."""

import pytest

from fedcome_ray import metrics
from fedcome_ray.launch.outcome import Outcome


def test_all_finished_is_success() -> None:
    assert Outcome({"a", "b"}, finished={"a", "b"}).exit_code == 0
    assert Outcome().exit_code == 0
    assert Outcome({"a"}, finished={"a"}, complaint="MLflow: gone").exit_code == 3
    assert Outcome({"a"}, failures={"a": "why"}, complaint="MLflow: gone").exit_code == 1


def test_a_trial_that_a_search_stopped_is_no_failure() -> None:
    assert Outcome({"a", "b"}, finished={"a"}, stopped={"b"}).exit_code == 0


def test_a_failure_is_one_but_no_interruption() -> None:
    outcome = Outcome({"a", "b"}, finished={"a"}, failures={"b": "why"})
    assert outcome.exit_code == 1
    assert not outcome.is_interrupted


def test_what_did_not_end_was_interrupted() -> None:
    outcome = Outcome({"a", "b"}, finished={"a"})
    assert outcome.is_interrupted
    assert outcome.exit_code == 1


def test_several_launches_are_summed_up_as_one() -> None:
    first = Outcome(
        {"a", "b"}, finished={"a"}, failures={"b": "why"}, complaint="gone", slot_seconds=1.0
    )
    second = Outcome({"c", "d", "e"}, finished={"c"}, stopped={"d", "e"}, slot_seconds=2.0)
    for outcome in (first, second):
        outcome.phases["train"] += 1.0
        outcome.outside["start"] += 0.5
    whole = Outcome.of_all([first, second])
    assert (len(whole.pending), whole.finished, whole.stopped) == (5, {"a", "c"}, {"d", "e"})
    assert (whole.failures, whole.complaint) == ({"b": "why"}, "gone")
    assert (whole.phases, whole.outside) == ({"train": 2.0}, {"start": 1.0})
    assert whole.slot_seconds == 3.0
    assert not whole.is_interrupted


def test_what_a_search_goes_on_with_is_no_longer_stopped() -> None:
    paused = Outcome({"a", "b"}, stopped={"a", "b"})
    whole = Outcome.of_all([paused, Outcome({"a"}, finished={"a"})])
    assert (whole.finished, whole.stopped) == ({"a"}, {"b"})
    assert not whole.is_interrupted


def test_the_overhead_is_the_time_of_the_slots_outside_of_rounds() -> None:
    outcome = Outcome({"a", "b"}, finished={"a", "b"}, slot_seconds=10.0)
    outcome.phases[metrics.SECONDS_ROUND] += 7.0
    assert outcome.overhead == pytest.approx(1.5)
