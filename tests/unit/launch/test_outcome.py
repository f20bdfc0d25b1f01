"""How a launch ended, as an exit code and as time."""

import pytest

from fedcome_ray import metrics
from fedcome_ray.launch.outcome import Outcome


def test_all_finished_is_success() -> None:
    assert Outcome(2, finished={"a", "b"}).exit_code == 0
    assert Outcome(0).exit_code == 0


def test_a_trial_that_a_search_stopped_is_no_failure() -> None:
    assert Outcome(2, finished={"a"}, stopped={"b"}).exit_code == 0


def test_a_failure_is_one_but_no_interruption() -> None:
    outcome = Outcome(2, finished={"a"}, failures={"b": "why"})
    assert outcome.exit_code == 1
    assert not outcome.is_interrupted


def test_what_did_not_end_was_interrupted() -> None:
    outcome = Outcome(2, finished={"a"})
    assert outcome.is_interrupted
    assert outcome.exit_code == 1


def test_the_overhead_is_the_time_of_the_slots_outside_of_rounds() -> None:
    outcome = Outcome(2, finished={"a", "b"}, slot_seconds=10.0)
    outcome.phases[metrics.SECONDS_ROUND] += 7.0
    assert outcome.overhead == pytest.approx(1.5)
