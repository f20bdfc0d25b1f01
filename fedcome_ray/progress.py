"""What a user sees while trials run: one live display, or plain lines without a terminal."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedcome_ray.config import Trial
from fedcome_ray.trial import Line

PLAIN_SECONDS = 10.0
MAX_ROWS = 12


class Progress:
    """Follows the trials of a launch. Work is counted in client updates, so that ETA is fair."""

    def __init__(self, console: Console, trials: Sequence[Trial], cohort_sizes: dict[str, int]):
        self.console = console
        self.status: Counter[str] = Counter({"waiting": len(trials)})
        self._cohorts = cohort_sizes
        self._total = sum(trial.rounds * cohort_sizes[trial.key] for trial in trials)
        self._done = 0
        self._rounds: dict[str, int] = {}
        self._resumed: dict[str, int] = {}  # rounds of earlier launches
        self._running: dict[str, tuple[Trial, float | None]] = {}
        self._best: tuple[float, str] | None = None
        self._start = time.monotonic()
        self._last_plain = self._start
        self._live: Live | None = None

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._render, console=self.console, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, trial: Trial) -> None:
        self.status["waiting"] -= 1
        self.status["running"] += 1
        self._running[trial.key] = (trial, None)

    def resumed(self, trial: Trial, num_rounds: int) -> None:
        """Rounds of an earlier launch: done, but they say nothing about the speed of this one."""
        self._resumed[trial.key] = self._rounds[trial.key] = num_rounds
        self._done += num_rounds * self._cohorts[trial.key]

    def advanced(self, trial: Trial, lines: Iterable[Line]) -> None:
        before = self._rounds.get(trial.key, 0)
        accuracy = self._running.get(trial.key, (trial, None))[1]
        for line in lines:
            self._rounds[trial.key] = max(self._rounds.get(trial.key, 0), line["round"] + 1)
            accuracy = line["metrics"].get("accuracy/test", accuracy)
        self._done += (self._rounds.get(trial.key, 0) - before) * self._cohorts[trial.key]
        self._running[trial.key] = (trial, accuracy)
        self._say_something()

    def ended(self, trial: Trial, outcome: str) -> None:
        """`outcome` is done or failed."""
        _, accuracy = self._running.pop(trial.key, (trial, None))
        self.status["running"] -= 1
        self.status[outcome] += 1
        if outcome == "done" and accuracy is not None:
            self._best = max(self._best or (0.0, ""), (accuracy, trial.name))
        if self._live is None:
            shown = f"accuracy {accuracy:.3f}" if accuracy is not None else ""
            self.console.print(f"{outcome:>6}  {trial.name}  {shown}", highlight=False)
        self._say_something()

    def _say_something(self) -> None:
        if self._live is None and time.monotonic() - self._last_plain > PLAIN_SECONDS:
            self._last_plain = time.monotonic()
            self.console.print(self._headline(), highlight=False)

    def _headline(self) -> str:
        counts = ", ".join(f"{n} {word}" for word, n in self.status.items() if n)
        elapsed = time.monotonic() - self._start
        parts = [counts, f"{self._done / self._total:.0%}"]
        resumed = sum(rounds * self._cohorts[key] for key, rounds in self._resumed.items())
        if self._done > resumed:
            left = elapsed * (self._total - self._done) / (self._done - resumed)
            rounds = sum(self._rounds.values()) - sum(self._resumed.values())
            parts += [f"{rounds / elapsed:.1f} rounds/s", f"ETA {timedelta(seconds=round(left))}"]
        if self._best:
            parts.append(f"best {self._best[0]:.3f} ({self._best[1]})")
        return " · ".join(parts)

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for trial, accuracy in list(self._running.values())[:MAX_ROWS]:
            shown = "" if accuracy is None else f"accuracy {accuracy:.3f}"
            done = self._rounds.get(trial.key, 0)
            table.add_row(f"  {trial.name}", f"round {done}/{trial.rounds}", shown)
        bar = ProgressBar(total=max(1, self._total), completed=self._done, width=60)
        return Group(Text(self._headline()), bar, table)
