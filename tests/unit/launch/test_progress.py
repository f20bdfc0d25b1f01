"""What a user sees while trials run."""

import io
from typing import Any

import pytest
from rich.console import Console

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch import progress as module
from fedcome_ray.launch.progress import Progress

COHORT = 5


def trials(count: int = 2, **settings: Any) -> list[Trial]:
    return [parse_trial({"rounds": 10, "seed": seed, **settings}) for seed in range(count)]


def some_rounds(*numbers: int, accuracy: float = 0.5) -> list[Round]:
    """Rounds of two seconds each."""
    took = {metrics.SECONDS_ROUND: 2.0}
    return [Round(number, (), {metrics.ACCURACY: accuracy}, took, 0.0) for number in numbers]


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def progress_of(own: list[Trial], *, is_terminal: bool = False) -> tuple[Progress, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=80, color_system=None)
    return Progress(console, own, {trial.key: COHORT for trial in own}), file


def test_without_a_terminal_every_end_is_a_line() -> None:
    first, second = trials()
    progress, file = progress_of([first, second])
    with progress:
        for trial in (first, second):
            progress.started(trial)
        progress.advanced(first, some_rounds(0, 1, accuracy=0.75))
        progress.ended(first, "done")
        progress.ended(second, "failed", "it diverged [/red]")
    assert file.getvalue().splitlines() == [
        "  done  fedavg-digits-p1-random-s0  accuracy 0.750",
        "failed  fedavg-digits-p1-random-s1  it diverged [/red]",
    ]


def test_without_a_terminal_the_headline_comes_now_and_then_on_one_line(clock: Clock) -> None:
    own = trials(4)
    progress, file = progress_of(own)
    with progress:
        for trial in own[:3]:
            progress.started(trial)
        progress.ended(own[0], "failed")
        clock.now = 20.0
        progress.advanced(own[1], some_rounds(*range(11)))
        progress.advanced(own[2], some_rounds(0))
    headline = file.getvalue().splitlines()[1]
    assert headline == "1 waiting, 2 running, 1 failed · 25% · 0.5 rounds/s · ETA 0:00:40"
    assert len(file.getvalue().splitlines()) == 2


def test_rounds_of_an_earlier_launch_are_done_but_say_nothing_about_the_speed(clock: Clock) -> None:
    (own,) = trials(1, rounds=20)
    progress, file = progress_of([own])
    with progress:
        progress.started(own)
        progress.resumed(own, 8)
        clock.now = 20.0
        progress.advanced(own, some_rounds(*range(10)))
        clock.now = 40.0
        progress.advanced(own, some_rounds(10, 11, 12))
    assert file.getvalue().splitlines() == [
        "1 running · 45% · estimating",
        "1 running · 60% · 0.1 rounds/s · ETA 0:00:16",
    ]


def test_a_history_that_is_told_twice_counts_once(clock: Clock) -> None:
    (own,) = trials(1)
    progress, file = progress_of([own])
    with progress:
        progress.started(own)
        progress.advanced(own, some_rounds(0, 1, 2, 3))
        clock.now = 20.0
        progress.advanced(own, some_rounds(0, 1, 2, 3, 4, 5))
    assert "50% · 0.2 rounds/s · ETA 0:00:10" in file.getvalue()


def test_trials_of_a_kind_not_seen_yet_make_the_time_a_lower_bound(clock: Clock) -> None:
    own = [*trials(1), *trials(1, model={"name": "logistic"})]
    progress, file = progress_of(own)
    with progress:
        progress.started(own[0])
        clock.now = 20.0
        progress.advanced(own[0], some_rounds(*range(6)))
    assert file.getvalue().rstrip().endswith("ETA more than 0:00:10")


def test_an_interruption_is_acknowledged_at_once() -> None:
    progress, file = progress_of(trials(1))
    with progress:
        progress.stopping()
    assert file.getvalue() == f"{module.STOPPING}\n"


def test_a_trial_that_ends_before_it_starts_was_waiting() -> None:
    own = trials()
    progress, _ = progress_of(own)
    progress.ended(own[0], "failed")
    assert {word: count for word, count in progress.status.items() if count} == {
        "waiting": 1,
        "failed": 1,
    }


class TestTerminal:
    def screen(self, own: list[Trial], num_running: int) -> str:
        """The display after some events, drawn once."""
        progress, _ = progress_of(own)
        for trial in own[:num_running]:
            progress.started(trial)
            progress.advanced(trial, some_rounds(0, 1))
        progress.ended(own[0], "done")
        file = io.StringIO()
        Console(file=file, width=80, force_terminal=True, color_system=None).print(
            progress._render()
        )
        return file.getvalue()

    def test_the_display_fits_on_eighty_columns(self) -> None:
        long = {"sampler": {"name": "similarity"}, "participation": 0.123456, "seed": 10**18}
        screen = self.screen([parse_trial({**long, "rounds": 1000 + n}) for n in range(4)], 4)
        assert all(len(line.rstrip()) <= 80 for line in screen.splitlines())
        assert sum("round 1/" in line for line in screen.splitlines()) == 3

    def test_every_running_trial_has_a_line_of_its_own(self) -> None:
        screen = self.screen(trials(3), 3).splitlines()
        assert screen[0].strip() == "2 running, 1 done"
        assert "40% · " in screen[1]  # all of the one that is done, a tenth of the others
        assert screen[2].split() == [
            "fedavg-digits-p1-random-s1",
            "round",
            "1/10",
            "accuracy",
            "0.500",
        ]
        assert screen[-1].strip() == "best 0.500 fedavg-digits-p1-random-s0"

    def test_trials_that_do_not_fit_are_counted(self) -> None:
        screen = self.screen(trials(module.MAX_ROWS + 4), module.MAX_ROWS + 3)
        assert "and 2 more" in screen

    def test_an_interruption_stays_on_the_screen(self) -> None:
        own = trials(1)
        progress, _ = progress_of(own)
        progress._live = module.Live()  # as in a terminal, but drawn only here
        progress.stopping()
        console = Console(file=io.StringIO(), width=80)
        console.print(progress._render())
        assert console.file.getvalue().splitlines()[-1].strip() == module.STOPPING  # type: ignore[attr-defined]

    def test_a_failure_stays_on_the_screen_and_the_cursor_comes_back(self) -> None:
        own = trials()
        progress, file = progress_of(own, is_terminal=True)
        with progress:
            progress.started(own[0])
            progress.ended(own[0], "failed", "it diverged")
        assert "failed  fedavg-digits-p1-random-s0  it diverged" in file.getvalue()
        assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")
