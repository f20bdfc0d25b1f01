"""Whatever waits for resources says so, and for what: Ray itself waits in silence."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.util import placement_group_table

from fedcome_ray.runtime.placement import Bundle, bundle_words

PATIENCE_SECONDS = 60.0
MANY = 10
"""Times what an answer took before, and a shard that still has not given it hangs."""
LEAST_SECONDS = 30.0
"""Quicker answers count as if they took so long."""
FIRST_SECONDS = 3600.0
"""For the first answer to a question."""
PATIENCE_GROWTH = 2
"""Who did not answer in time, and was only slow, gets so many times as long next time."""


class AnswerTimes:
    """How long actors may take to answer: many times as long as they ever did."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}  # by what they were asked

    def limit(self, question: str) -> float:
        """Seconds."""
        longest = self._longest.get(question)
        return FIRST_SECONDS if longest is None else MANY * max(LEAST_SECONDS, longest)

    @contextmanager
    def waiting(self, question: str, begun: float | None = None) -> Iterator[float]:
        """The limit, while answers are waited for that were asked for when it `begun`, or now."""
        start, limit = time.monotonic() if begun is None else begun, self.limit(question)
        try:
            yield limit
        finally:
            took = min(time.monotonic() - start, PATIENCE_GROWTH * limit / MANY)
            self._longest[question] = max(took, self._longest.get(question, 0.0))


class Patience:
    """Says once, of each wait that lasts too long, what it is for."""

    def __init__(
        self, explain: Callable[[], str | None], say: Callable[[str], None], seconds: float
    ) -> None:
        self._explain, self._say, self._seconds = explain, say, seconds
        self._since: float | None = None
        self._is_said = False

    def look(self, is_waiting: bool) -> None:
        """Called often; `explain` is asked when a wait gets long, None means that it is none."""
        if not is_waiting:
            self._since, self._is_said = None, False
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if self._is_said or now - self._since < self._seconds:
            return
        reason = self._explain()
        if reason is None:
            self._since = now
            return
        self._say(f"waiting for {now - self._since:.0f} s: {reason}")
        self._is_said = True


def pending_trials() -> str | None:
    """What placement groups that Ray has not made yet wait for."""
    groups = [group for group in placement_group_table().values() if group["state"] == "PENDING"]
    if not groups:
        return None
    bundles = list(groups[0]["bundles"].values())
    return f"a trial needs {trial_words(bundles)}; free now: {free_words()}"


def trial_words(bundles: Sequence[Bundle]) -> str:
    """The bundles of a trial, equal ones counted."""
    shown = [bundle_words(bundle) for bundle in bundles]
    return ", ".join(f"{shown.count(one)} x ({one})" for one in dict.fromkeys(shown))


def free_words() -> str:
    free = ray.available_resources()
    return bundle_words({name: round(free.get(name, 0), 4) for name in ("CPU", "GPU")})


def wait_for_shards(
    actors: Sequence[Any],
    bundle: Bundle,
    say: Callable[[str], None],
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Wait until actors have started or died; say what they wait for if that takes long."""
    calls = [actor.__ray_ready__.remote() for actor in actors]
    _, late = ray.wait(calls, num_returns=len(calls), timeout=seconds)
    if late:
        say(
            f"waiting for {seconds:.0f} s: {len(late)} of {len(calls)} shards have not started; "
            f"each needs {bundle_words(bundle)}; free now: {free_words()}"
        )
        ray.wait(calls, num_returns=len(calls))
