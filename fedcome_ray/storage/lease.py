"""One launch at a time writes to a storage, which has no locks: leases, numbered.

    .lease/00000007    who holds it, and a count that grows while the holder lives

A launch takes the next number by creating its object, which a store lets only one of several do.
The holder writes it anew every few seconds. Who finds one that nobody gave back watches it: if it
changes, its holder lives; if it does not for a while, the next number may be taken. No clocks are
compared. A holder that was taken for dead notices the higher number before it writes anything.
"""

import json
import os
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcome_ray.errors import AwayError, FedcomeError, LostError, UserError
from fedcome_ray.storage import remote as remote_module
from fedcome_ray.storage.remote import Remote

FOLDER = ".lease"
OWNER = ".owner"  # the file in a working copy that says whose leases are its own
RENEWAL_SECONDS = 10.0
LEASE_SECONDS = 60.0
"""A lease that was not renewed for so long is nobody's."""
GOES_ON = "what was sent there before is safe; the same command goes on"
Content = dict[str, Any]


@dataclass(frozen=True)
class Lease:
    """The right to write to a storage; it can be sent to other processes."""

    remote: Remote
    number: int

    def check(self) -> None:
        """Raise unless this is still the newest lease."""
        newest = max(_numbers(self.remote), default=0)
        if newest > self.number:
            holder = _read(self.remote, newest)
            raise LostError(
                f"{self.remote.address}: another launch has taken over, {_who(holder)}; this one "
                f"did not answer for {LEASE_SECONDS:.0f} seconds"
            )


@contextmanager
def held(remote: Remote, folder: Path, say: Callable[[str], object]) -> Iterator[Lease]:
    """Hold the storage meanwhile; `folder` is its working copy, which this process has locked."""
    content: Content = {
        "owner": _owner(folder),
        "host": platform.node(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "count": 0,
        "is_over": False,
    }
    lease = _take(remote, content, say)
    keeper = _Keeper(lease, content, say)
    try:
        yield lease
    except KeyboardInterrupt:
        if keeper.trouble is None:
            raise
    except AwayError as error:
        error.add_note(GOES_ON)
        raise
    finally:
        keeper.stop()
    if keeper.trouble is not None:
        keeper.trouble.add_note(GOES_ON)
        raise keeper.trouble


def _take(remote: Remote, content: Content, say: Callable[[str], object]) -> Lease:
    while True:
        number = max(_numbers(remote), default=0)
        before = _read(remote, number)
        # The launches of one working copy exclude each other by its lock: that one is dead.
        is_free = before is None or before["is_over"] or before["owner"] == content["owner"]
        if not is_free:
            _watch(remote, number, before, say)
        if remote.create(_name(number + 1), _bytes(content)):
            _check_exclusive(remote, number + 1, content)
            remote.delete([_name(one) for one in _numbers(remote) if one <= number])
            return Lease(remote, number + 1)


def _watch(
    remote: Remote, number: int, before: Content | None, say: Callable[[str], object]
) -> None:
    """Return when a lease has not changed for long enough; refuse if it does."""
    say(
        f"{remote.address} was not given back: {_who(before)}; waiting up to "
        f"{LEASE_SECONDS:.0f} s for a sign of life"
    )
    end = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < end:
        time.sleep(RENEWAL_SECONDS / 10)
        now = _read(remote, number)
        if now is None or now["is_over"]:
            return
        if now != before:
            raise FedcomeError(f"another launch is at work in {remote.address}: {_who(now)}")


def _check_exclusive(remote: Remote, number: int, content: Content) -> None:
    """Refuse a store that would let two launches in: not all know conditional writes."""
    if remote.create(_name(number), _bytes({**content, "count": -1})):
        remote.delete([_name(number)])
        raise UserError(
            f"--output: the store of `{remote.address}` overwrites what it was asked to create "
            f"only if it is not there (If-None-Match): launches could not exclude each other"
        )


class _Keeper:
    """The thread that renews a lease, and stops the launch if that is impossible."""

    def __init__(self, lease: Lease, content: Content, say: Callable[[str], object]) -> None:
        self.trouble: FedcomeError | None = None
        self._lease, self._content, self._say = lease, content, say
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the lease back."""
        self._is_over.set()
        self._thread.join()
        try:
            self._write(is_over=True)
        except AwayError as error:
            self.trouble = self.trouble or error
        except LostError as error:
            self.trouble = error

    def _main(self) -> None:
        answered, is_away = time.monotonic(), False
        while not self._is_over.wait(RENEWAL_SECONDS):
            try:
                self._write(count=self._content["count"] + 1)
            except AwayError as error:
                silence = time.monotonic() - answered
                if silence > LEASE_SECONDS + remote_module.PATIENCE_SECONDS:
                    self._give_up(AwayError(f"{error}; not for {silence:.0f} seconds"))
                    return
                if not is_away:
                    self._say(f"{error}; trials go on, and it is tried again")
                is_away = True
            except LostError as error:
                self._give_up(error)
                return
            else:
                if is_away:
                    self._say(f"{self._lease.remote.address} answers again")
                answered, is_away = time.monotonic(), False

    def _write(self, **changes: Any) -> None:
        self._lease.check()
        self._content |= changes
        self._lease.remote.write(_name(self._lease.number), _bytes(self._content))

    def _give_up(self, trouble: FedcomeError) -> None:
        """An orderly end, as by Ctrl-C."""
        self.trouble = trouble
        self._say(str(trouble))
        if not self._is_over.is_set():  # else it is ending
            os.kill(os.getpid(), signal.SIGINT)


def _owner(folder: Path) -> str:
    """Of the launches in a working copy; a home that machines share has one for each of them."""
    path = folder / OWNER
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return f"{platform.node()} {path.read_text()}"


def _who(content: Content | None) -> str:
    if content is None:
        return "someone"
    return f"process {content['pid']} on {content['host']}, since {content['since']}"


def _numbers(remote: Remote) -> list[int]:
    return [int(name.rpartition("/")[2]) for name in remote.marks(FOLDER)]


def _read(remote: Remote, number: int) -> Content | None:
    found = remote.read(_name(number))
    content: Content | None = json.loads(found) if found else None
    return content


def _name(number: int) -> str:
    return f"{FOLDER}/{number:08d}"


def _bytes(content: Content) -> bytes:
    return json.dumps(content).encode()
