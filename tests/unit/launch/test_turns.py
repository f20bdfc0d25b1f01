"""Short trials go to processes by the dozen, and none waits for one while others are idle."""

from hypothesis import given
from hypothesis import strategies as st

from fedcome_ray.launch.turns import MOST, SPARE, Turns


def turns_of(number: int) -> Turns:
    return Turns(str(key) for key in range(number))


def test_the_last_trials_are_taken_one_by_one() -> None:
    turns = turns_of(8)
    assert [turns.take(2) for _ in range(8)] == [[str(key)] for key in range(8)]
    assert not turns


def test_many_trials_are_taken_together_but_not_all_that_there_are() -> None:
    assert turns_of(40).take(2) == [str(key) for key in range(5)]
    assert len(turns_of(10_000).take(2)) == MOST


def test_what_is_given_back_is_taken_next_and_in_order() -> None:
    turns = turns_of(12)
    first, *others = turns.take(1)
    turns.back(others)
    assert [first, turns.take(1), turns.take(1)] == ["0", ["1", "2", "3"], ["4", "5"]]


def test_after_a_death_each_is_taken_alone_and_first() -> None:
    turns = turns_of(12)
    turns.suspect(turns.take(1))
    assert len(turns) == 12
    assert [turns.take(1) for _ in range(4)] == [["0"], ["1"], ["2"], ["3", "4", "5"]]


@given(st.integers(1, 300), st.integers(1, 8))
def test_every_trial_is_taken_once_and_a_turn_is_never_empty(number: int, slots: int) -> None:
    turns, taken = turns_of(number), []
    while turns:
        waiting = len(turns)
        taken.append(turns.take(slots))
        assert 0 < len(taken[-1]) <= waiting / (SPARE * slots) + 1
    assert [key for turn in taken for key in turn] == [str(key) for key in range(number)]
