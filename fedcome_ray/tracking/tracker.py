"""The thread that writes what trials tell it to the store, in the background and in order.

    Opening ──> Open <──> Resting
       └──────> Unusable

A store that fails must not stop the trials, whose folders lose nothing. It is left alone for a
while then: a server that is gone takes its time to say so, and a launch would wait for that at the
end of every trial. What it misses is kept for it, and at the end of a launch it is tried again and
again for a while, unless the launch itself has failed. One that never opened is not tried again.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from fedcome_ray.errors import FedcomeError, UserError, without_passwords
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round
from fedcome_ray.tracking.apart import client_apart
from fedcome_ray.tracking.client import Client, root_cause
from fedcome_ray.tracking.store import Store, open_store

FLUSH_SECONDS = 4.0
REST_SECONDS = 60.0
LAST_REST_SECONDS = 2.0
"""Between attempts when nothing else is left to do."""
PATIENCE_SECONDS = 90.0
"""How long the end of a launch waits for a store that fails."""
QUIET_SECONDS = 5.0
"""That the end of a launch waits without a word."""


@dataclass(frozen=True)
class Opening:
    """The store is not there yet."""


@dataclass(frozen=True)
class Open:
    """The store takes what it is given."""

    store: Store


@dataclass(frozen=True)
class Resting:
    """The store has failed and is left alone."""

    store: Store
    trouble: str
    until: float  # of the monotonic clock


@dataclass(frozen=True)
class Unusable:
    """The store could not be opened."""

    trouble: str


State = Opening | Open | Resting | Unusable


def after_failure(state: State, trouble: str, now: float) -> State:
    match state:
        case Open(store) | Resting(store):
            return Resting(store, trouble, now + REST_SECONDS)
        case _:
            return Unusable(trouble)


def after_waiting(state: State, now: float) -> State:
    if isinstance(state, Resting) and now >= state.until:
        return Open(state.store)
    return state


class Untracked:
    """Stands in for a tracker where nothing is tracked."""

    complaint = None

    def check_open(self) -> None: ...
    def check_usable(self) -> None: ...
    def trial_started(self, trial: Trial) -> None: ...
    def trial_advanced(self, trial: Trial, rounds: Iterable[Round]) -> None: ...
    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None: ...
    def mirror(self, trial: Trial, folder: Path) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class Tracker:
    """A queue of things to write, and the thread that writes them; `say` is for what takes long.

    `is_patient` says whether the end waits for a store that fails. `beside` is another tracker,
    which opens the store for both: a launch is refused for it at its beginning, or not at all.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        artifacts: Path,
        tags: Mapping[str, str],
        say: Callable[[str], object] = lambda _: None,
        connect: Callable[[str], Client] = client_apart,
        fetch: Callable[[Path], object] = lambda folder: None,
        log_every: int | None = None,
        beside: "Tracker | None" = None,
    ) -> None:
        self.uri = uri
        self._say = say
        self.is_patient = True
        if beside is None:
            where = (uri, experiment, artifacts, tags)
            self._open_store = partial(open_store, *where, connect, fetch, log_every)
        else:
            self._open_store = partial(beside._shared_store, connect)
        self._state: State = Opening()
        self._moved = threading.Condition()
        self._due: deque[Callable[[Store], None]] = deque()
        self._unwritten: dict[Trial, list[Round]] = {}
        self._ended: set[str] = set()  # trial keys; what is told of them may wait to be written
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()  # None is the end
        self._thread = threading.Thread(target=self._main, name="tracking", daemon=True)
        self._thread.start()

    def check_open(self) -> None:
        """Block until the experiment is there; refuse a store that cannot be opened."""
        self._work.put(lambda: None)
        self._wait_until_open()
        self.check_usable()

    def check_usable(self) -> None:
        """Refuse a store that could not be opened; one that is being opened may take its time."""
        if isinstance(self._state, Unusable):
            shown = without_passwords(self.uri)
            raise UserError(f"--tracking-uri: cannot use `{shown}`: {self._state.trouble}")

    @property
    def complaint(self) -> str | None:
        """What is wrong with the store, for people; None if it has all that it was told."""
        match self._state:
            case Resting(trouble=trouble) | Unusable(trouble=trouble):
                return (
                    f"MLflow: {without_passwords(f'{trouble} ({self.uri})')}; nothing is lost, the "
                    f"same command mirrors the results"
                )
            case _:
                return None

    def trial_started(self, trial: Trial) -> None:
        def begin(store: Store) -> None:
            if trial.key not in self._ended:  # else its end does all that there is to do
                store.begin(trial)

        self._enqueue_write(begin)

    def trial_advanced(self, trial: Trial, rounds: Iterable[Round]) -> None:
        self._work.put(partial(self._keep, trial, list(rounds)))

    def trial_ended(self, trial: Trial, status: str, folder: Path) -> None:
        """`status` is MLflow's: FINISHED, FAILED or KILLED."""

        def end(store: Store) -> None:
            store.end(trial, status, folder, self._unwritten.get(trial, ()))
            self._unwritten.pop(trial, None)  # not before they are written: a failure is repeated

        self._ended.add(trial.key)
        self._enqueue_write(end)

    def mirror(self, trial: Trial, folder: Path) -> None:
        """Make sure that a trial finished in an earlier launch is in this store too."""
        self._enqueue_write(lambda store: store.mirror(trial, folder))

    def launch_ended(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        self._enqueue_write(lambda store: store.log_launch(params, metrics, texts))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.is_patient &= error is None
        self.close()

    def finish(self) -> None:
        """Nothing more will be told."""
        self._enqueue_write(self._flush)
        self._work.put(None)

    def close(self) -> None:
        """Write what is left, with patience for a store that fails."""
        self.finish()
        self._thread.join(QUIET_SECONDS)
        if self._thread.is_alive():
            self._say("writing what is left to MLflow")
            self._thread.join()

    def _wait_until_open(self) -> None:
        with self._moved:
            self._moved.wait_for(lambda: not isinstance(self._state, Opening))

    def _shared_store(self, connect: Callable[[str], Client]) -> Store:
        """For another tracker, which asks the server for nothing to open it."""
        self._wait_until_open()
        match self._state:
            case Open(store) | Resting(store):
                return store.beside(connect(self.uri))
            case state:
                raise FedcomeError(getattr(state, "trouble", ""))

    def _enqueue_write(self, action: Callable[[Store], None]) -> None:
        self._work.put(partial(self._write, action))

    def _main(self) -> None:
        task = self._work.get()  # opening takes seconds, which trials that start need more
        self._open()
        while task is not None:
            task()
            task = self._next_task()
        if isinstance(self._state, Resting) and self.is_patient:
            self._say("trying MLflow again, which failed")
            self._insist()
        if isinstance(self._state, Open | Resting):
            self._state.store.close()

    def _insist(self) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while isinstance(self._state, Resting) and time.monotonic() < end:
            time.sleep(LAST_REST_SECONDS)
            self._move_to(Open(self._state.store))
            self._catch_up()

    def _next_task(self) -> Callable[[], None] | None:
        """What was told next, unless a flush is due."""
        patience = self._next_flush - time.monotonic()
        if patience > 0:
            with suppress(queue.Empty):
                return self._work.get(timeout=patience)
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        return partial(self._write, self._flush)

    def _open(self) -> None:
        try:
            self._move_to(Open(self._open_store()))
        except Exception as error:  # noqa: BLE001 - told by check_open
            self._fail(error)

    def _write(self, action: Callable[[Store], None]) -> None:
        self._due.append(action)
        self._catch_up()

    def _catch_up(self) -> None:
        """Do what is due, unless the store rests or never opened."""
        self._move_to(after_waiting(self._state, time.monotonic()))
        while self._due and isinstance(self._state, Open):
            try:
                self._due[0](self._state.store)
                self._due.popleft()  # not before it is done: a failure is repeated
            except Exception as error:  # noqa: BLE001 - whoever owns the tracker shows it
                self._due.rotate(-1)  # what can never be written must not stop the rest
                self._fail(error)

    def _keep(self, trial: Trial, rounds: list[Round]) -> None:
        self._unwritten.setdefault(trial, []).extend(rounds)

    def _flush(self, store: Store) -> None:
        """The rounds of trials under way: those of others are written when they are ended."""
        for trial in [trial for trial in self._unwritten if trial.key not in self._ended]:
            store.log_rounds(trial, self._unwritten[trial])
            del self._unwritten[trial]  # not before they are written: a failure is repeated

    def _fail(self, error: Exception) -> None:
        self._move_to(after_failure(self._state, root_cause(error), time.monotonic()))

    def _move_to(self, state: State) -> None:
        with self._moved:
            self._state = state
            self._moved.notify_all()
