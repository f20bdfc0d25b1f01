"""Who waits for resources says so."""

import pytest

from fedcome_ray.runtime import waiting
from fedcome_ray.runtime.waiting import AnswerTimes, Patience, trial_words


class Waiter:
    """A wait whose time and reason are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.said = 0.0, list[str]()
        self.reason: str | None = "for two GPUs"
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now)
        self.patience = Patience(lambda: self.reason, self.said.append, seconds=60)

    def wait(self, until: float) -> None:
        while self.now < until:
            self.patience.look(True)
            self.now += 1


def test_a_short_wait_is_not_worth_a_word(monkeypatch) -> None:
    waiter = Waiter(monkeypatch)
    waiter.wait(until=50)
    waiter.patience.look(False)
    waiter.wait(until=100)
    assert waiter.said == []


def test_each_long_wait_is_said_once(monkeypatch) -> None:
    waiter = Waiter(monkeypatch)
    waiter.wait(until=200)
    assert waiter.said == ["waiting for 60 s: for two GPUs"]
    waiter.patience.look(False)
    waiter.wait(until=300)
    assert len(waiter.said) == 2


def test_what_only_starts_slowly_does_not_wait_for_resources(monkeypatch) -> None:
    waiter = Waiter(monkeypatch)
    waiter.reason = None
    waiter.wait(until=100)
    assert waiter.said == []
    waiter.reason = "for two GPUs"
    waiter.wait(until=200)
    assert len(waiter.said) == 1


def test_equal_bundles_are_counted() -> None:
    bundles = [{"CPU": 0.2}, {"CPU": 0.5, "GPU": 0.25}, {"CPU": 0.5, "GPU": 0.25}]
    assert trial_words(bundles) == "1 x (0.2 CPU), 2 x (0.5 CPU and 0.25 GPU)"


def test_answers_may_take_many_times_as_long_as_ever_before(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    times = AnswerTimes()
    assert times.limit("train") == waiting.FIRST_SECONDS
    with times.waiting("train"):
        now[0] += 1  # as if it had taken the least
    assert times.limit("train") == 300
    with times.waiting("train"):
        now[0] += 50
    assert times.limit("train") == 500
    assert times.limit("evaluate") == waiting.FIRST_SECONDS


def test_who_hangs_again_and_again_is_not_waited_for_without_end(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    times = AnswerTimes()
    with times.waiting("train"):
        now[0] += 1
    limits = []
    for _ in range(3):
        with times.waiting("train") as seconds:
            now[0] += seconds
        limits.append(times.limit("train"))
    assert limits == [600, 1200, 2400]
