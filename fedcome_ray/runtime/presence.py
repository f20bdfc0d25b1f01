"""Whether Ray is still there: a launch whose Ray is gone ends at once, and says so.

Ray's client would block the process for up to a minute, then end it without a word. The folders of
trials are always in a state to go on from.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import ray
from ray._private import worker
from rich.console import Console

from fedcome_ray.console.exits import FAILED, INTERRUPTED
from fedcome_ray.console.output import say
from fedcome_ray.runtime import scratch, session

LOOK_SECONDS = 0.5
LOOK_SECONDS_PRIVATE = 0.05
"""At processes of our own: where they are gone, the next call of Ray would end this one."""
TOLD = "told to stop; the same command goes on"
PATIENCE_SECONDS = 45.0
"""With a cluster that is out of reach, perhaps for a moment; Ray gives up after a minute."""


class Watch:
    """Looks after the Ray that this process works on; `address` is None for a private one.

    It hears of signals at once: the main thread, which may be in a call of Ray, hears of them when
    that returns. By then Ray may have ended the process, if it was told to stop, too.
    """

    def __init__(self, address: str | None, console: Console) -> None:
        self._address, self._console = address, console
        self._is_over, self._is_told = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, name="watching Ray", daemon=True)
        self._signals, self._bell = socket.socketpair()
        self._signals.settimeout(LOOK_SECONDS_PRIVATE if address is None else LOOK_SECONDS)
        self._bell.setblocking(False)
        self._bell_before: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._bell_before = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
        if self._bell_before is not None:
            signal.set_wakeup_fd(self._bell_before)
        self._is_over.set()
        self._thread.join()  # what it looks at is about to end in order
        self._signals.close()
        self._bell.close()

    def told(self) -> None:
        """Stopping: if its whole group was told so, as by a batch system, Ray is about to end."""
        self._is_told.set()

    @property
    def is_told(self) -> bool:
        return self._is_told.is_set()

    def _look(self) -> None:
        gone_since: float | None = None
        while not self._is_over.is_set():
            self._hear()
            trouble = _dead_process() if self._address is None else self._out_of_reach()
            if trouble is None:
                gone_since = None
                continue
            gone_since = gone_since or time.monotonic()
            is_brief = time.monotonic() - gone_since < PATIENCE_SECONDS
            if self._address is None or self.is_told or not is_brief:
                self._end(trouble)

    def _hear(self) -> None:
        """What signals came, until it is time to look again."""
        with suppress(TimeoutError):
            if signal.SIGTERM in self._signals.recv(64):
                self.told()
                if self._address is None:
                    session.expect_the_end()
                say(self._console, TOLD)

    def _out_of_reach(self) -> str | None:
        try:
            probe(ray.get_runtime_context().gcs_address)
        except OSError as error:
            return f"Ray at {self._address} does not answer: {error}"
        return None

    def _end(self, trouble: str) -> None:
        self._console.show_cursor()
        failed = f"failed: {trouble}; the same command goes on"
        says = INTERRUPTED if self.is_told else failed
        try:
            self._console.file.write(f"{says}\n")  # an error is said even if nothing else is
            self._console.file.flush()
            scratch.remove_temporary()
            session.end(is_told=self.is_told)
        finally:
            os._exit(FAILED)


def probe(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def _dead_process() -> str | None:
    """Of a private Ray."""
    node: Any = worker._global_node
    dead = [kind for kind, _ in node.dead_processes()]
    return f"Ray has lost its {' and '.join(dead)}, killed or out of memory" if dead else None
