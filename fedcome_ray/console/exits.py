"""How a command ends: exit codes, the way errors are shown, Ctrl-C."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedcome_ray.errors import FedcomeError, UserError, cut, without_passwords
from fedcome_ray.numerics import environment

OK, FAILED, USAGE = 0, 1, 2
BEHIND = 3
"""All is done, but MLflow does not have all of it."""
LONGEST_LINE = 1_000
INTERRUPTED = "interrupted; the same command goes on"


def guarded(action: Callable[[], int], *, portable: bool = False) -> int:
    """Run a program; a user's mistake is shown as its text, without a traceback."""
    # What it warns of is said with the results, in a line of ours.
    warnings.filterwarnings("ignore", message="MKL computed before", category=RuntimeWarning)
    try:
        if portable:
            environment.make_portable()  # before `action` imports NumPy
        with handling(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT)):
            return action()  # told to end, as by Ctrl-C
    except UserError as error:
        print(f"error: {_short(error)}", file=sys.stderr)  # noqa: T201
        return USAGE
    except FedcomeError as error:
        where = [f"\n  {note}" for note in getattr(error, "__notes__", [])]
        print(f"failed: {_short(error)}{''.join(where)}", file=sys.stderr)  # noqa: T201
        return FAILED
    except OSError as error:  # a full disk, a folder that was removed
        print(f"failed: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)  # noqa: T201
        return FAILED


def _short(error: Exception) -> str:
    """What is to be said, whatever the user's values in it."""
    lines = without_passwords(str(error)).splitlines()
    return "\n".join(cut(line, LONGEST_LINE) for line in lines)


@contextmanager
def handling(number: int, handle: Callable[..., object] | int) -> Iterator[None]:
    """Handle a signal meanwhile; only the main thread can, so in others nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, previous)


@contextmanager
def deferred_interrupt(acknowledge: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, to be asked where stopping is safe; the second time insists."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        acknowledge()

    with handling(signal.SIGINT, note):
        yield lambda: bool(asked)
