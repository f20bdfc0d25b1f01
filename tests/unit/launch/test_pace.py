"""What is left of a launch, from the rounds that were seen."""

from typing import Any

import pytest

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.pace import ENOUGH, Left, Pace

COHORT = 5


def trial(**settings: Any) -> Trial:
    return parse_trial({"rounds": 10, **settings})


def rounds(*numbers: int, seconds: float = 2.0) -> list[Round]:
    return [Round(number, (), {}, {metrics.SECONDS_ROUND: seconds}, 0.0) for number in numbers]


def pace(*trials: Trial, slots: int = 1, **cohorts: int) -> Pace:
    return Pace({one.key: cohorts.get(one.data.dataset, COHORT) for one in trials}, slots)


def test_nothing_is_said_before_enough_rounds_were_seen() -> None:
    own = trial()
    known = pace(own)
    known.heard(own, rounds(*range(ENOUGH + 1)))  # the initial model, the first round and two more
    assert known.left({own: 7}) is None
    known.heard(own, rounds(ENOUGH + 1))
    assert known.left({own: 6}) == Left(12.0, is_all=True)


def test_the_first_round_of_a_trial_does_not_count() -> None:
    own = trial()
    known = pace(own)
    known.heard(own, [*rounds(1, seconds=1000.0), *rounds(2, 3, 4)])
    assert known.left({own: 6}) == Left(12.0, is_all=True)


def test_another_seed_takes_as_long_and_another_method_about() -> None:
    own, seed, method = trial(), trial(seed=1), trial(method={"name": "scaffold"})
    known = pace(own, seed, method)
    known.heard(own, rounds(*range(6)))
    assert known.left({seed: 10, method: 10}) == Left(40.0, is_all=True)
    known.heard(method, rounds(*range(6), seconds=4.0))
    assert known.left({seed: 10}) == Left(20.0, is_all=True)
    assert known.left({method: 10}) == Left(40.0, is_all=True)


def test_slots_that_come_share_what_is_left() -> None:
    own, other = trial(), trial(seed=1)
    known = pace(own, other)
    known.heard(own, rounds(*range(6)))
    assert known.left({own: 10, other: 10}) == Left(40.0, is_all=True)
    known.slots = 2
    assert known.left({own: 10, other: 10}) == Left(20.0, is_all=True)


def test_the_time_of_a_round_grows_with_its_cohort() -> None:
    small, large = trial(cohort_size=5), trial(cohort_size=10)
    known = Pace({small.key: 5, large.key: 10}, slots=1)
    known.heard(small, rounds(*range(6)))
    assert known.left({large: 10}) == Left(40.0, is_all=True)


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"name": "logistic"}},
        {"local": {"epochs": 5}},
        {"data": {"dataset": "synthetic"}},
    ],
)
def test_other_work_is_not_guessed_at(other: dict[str, Any]) -> None:
    own, unlike = trial(), trial(**other)
    known = pace(own, unlike)
    known.heard(own, rounds(*range(6)))
    assert known.left({unlike: 10}) is None
    assert known.left({own: 5, unlike: 10}) == Left(10.0, is_all=False)


def test_trials_at_the_same_time_share_the_time_but_none_is_faster_than_alone() -> None:
    trials = [trial(seed=seed) for seed in range(4)]
    known = pace(*trials, slots=2)
    known.heard(trials[0], rounds(*range(6)))
    assert known.left(dict.fromkeys(trials, 10)) == Left(40.0, is_all=True)
    assert known.left({trials[1]: 10}) == Left(20.0, is_all=True)


def test_trials_that_have_not_begun_have_to_start_too() -> None:
    done, begun, waiting = (trial(seed=seed) for seed in range(3))
    known = pace(done, begun, waiting)
    known.heard(done, rounds(*range(1, 6)), beside=1.0)
    known.heard(done, rounds(*range(6, 11)), beside=2.0)
    known.ended(done)
    known.heard(begun, rounds(1))
    assert known.left({begun: 9}) == Left(18.0, is_all=True)
    assert known.left({waiting: 10}) == Left(23.0, is_all=True)
