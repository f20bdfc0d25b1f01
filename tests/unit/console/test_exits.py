"""How commands end."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fedcome_ray.console.exits import FAILED, OK, USAGE, deferred_interrupt, guarded, handling
from fedcome_ray.errors import FedcomeError, UserError


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UserError("no such grid"), USAGE, "error: no such grid"),
        (FedcomeError("it diverged"), FAILED, "failed: it diverged"),
        (OSError(28, "No space left on device"), FAILED, "No space left on device"),
        (KeyboardInterrupt(), FAILED, "interrupted; the same command goes on"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: raising(error)) == code
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1


def test_a_message_stays_short_whatever_the_user_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: raising(UserError(f"rounds: got `{'9' * 10**6}`"))) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("error: rounds: got `999")
    assert len(said) < 1100


def test_where_more_is_known_is_said_below(capsys: pytest.CaptureFixture[str]) -> None:
    error = FedcomeError("momentum.py:25, in correct: KeyError: 'a'")
    error.add_note("results/trials/some/trial.log")
    assert guarded(lambda: raising(error)) == FAILED
    assert capsys.readouterr().err.splitlines() == [
        "failed: momentum.py:25, in correct: KeyError: 'a'",
        "  results/trials/some/trial.log",
    ]


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: raising(ZeroDivisionError()))


def test_success_is_passed_on() -> None:
    assert guarded(lambda: OK) == OK


def test_the_first_interrupt_is_noted_and_the_second_insists() -> None:
    acknowledged: list[bool] = []
    with deferred_interrupt(lambda: acknowledged.append(True)) as is_interrupted:
        assert not is_interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert is_interrupted()
        assert acknowledged == [True]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_change_no_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with handling(signal.SIGINT, print):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


TOLD = """
import os, signal, sys, time
from fedcome_ray.console.exits import guarded

def be_told():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

code = guarded(be_told)
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
sys.exit(code)
"""


def test_being_told_to_end_is_as_ctrl_c() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TOLD], capture_output=True, text=True, timeout=120, check=False
    )
    assert (told.returncode, told.stderr) == (FAILED, "interrupted; the same command goes on\n")
