"""Which trials a process is handed at a time: several, for they may be short."""

import math
from collections import deque
from collections.abc import Iterable, Sequence

MOST = 64
SPARE = 4
"""Of what waits, a turn gets no more than leaves so many turns to every process: none is idle while
another is in a long round, and has not given back what it has no time for."""


class Turns:
    """Trials that wait for their turn.

    To be handed a trial takes as long as many rounds of a small one. So a process gets several, and
    gives back those that it has no time for, see `fedcome_ray.runtime.trial_actor`. If it dies, one
    of them may be why: they are handed out again, each alone.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._waiting = deque(keys)
        self._suspected = deque[str]()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspected)

    def take(self, slots: int) -> list[str]:
        """The next turn, where so many are taken at the same time."""
        if self._suspected:
            return [self._suspected.popleft()]
        fair = math.ceil(len(self._waiting) / (SPARE * slots))
        return [self._waiting.popleft() for _ in range(min(fair, MOST))]

    def back(self, keys: Sequence[str]) -> None:
        """Trials that nobody has begun are the next to be taken."""
        self._waiting.extendleft(reversed(keys))

    def suspect(self, keys: Sequence[str]) -> None:
        """Trials with which a process has died."""
        self._suspected.extend(keys)
