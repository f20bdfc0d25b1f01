"""What a user sees while trials run: a live display, a bar in a notebook, or else plain lines."""

import html
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedcome_ray import metrics
from fedcome_ray.experiments.trial import Trial, names_among
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.pace import Pace

PLAIN_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.25
MAX_ROWS = 12
STOPPING = "stopping: trials write checkpoints, the same command goes on; Ctrl-C insists"
"""All that is to be said: if its Ray was told to stop too, this process may end at any moment."""


class NotebookBar:
    """A bar in the cell of a notebook, drawn by the browser."""

    def __init__(self, share_done: Callable[[], float], words: Callable[[], str]) -> None:
        self._share_done, self._words = share_done, words
        self._handle: Any = None
        self._last = 0.0

    def start(self) -> None:
        from IPython.display import display  # a notebook has it

        self._handle = display(self._html(), display_id=True)

    def update(self) -> None:
        if time.monotonic() - self._last > NOTEBOOK_SECONDS:
            self._last = time.monotonic()
            self._handle.update(self._html())

    def stop(self) -> None:
        self._handle.update(self._html())

    def _html(self) -> Any:
        from IPython.display import HTML

        bar = f'<progress value="{self._share_done():.4f}" max="1" style="width: 20em"></progress>'
        return HTML(f"{bar} {html.escape(self._words())}")


class Progress:
    """Follows the trials of a launch. Work is counted in client updates."""

    def __init__(
        self,
        console: Console,
        trials: Sequence[Trial],
        cohort_sizes: dict[str, int],
    ):
        self.console = console
        self.status: Counter[str] = Counter({"waiting": len(trials)})
        self._names = names_among(trials)
        self._cohorts = cohort_sizes
        self._pace = Pace(cohort_sizes)
        self._unfinished = {trial.key: trial for trial in trials}
        self._total = sum(trial.rounds * cohort_sizes[trial.key] for trial in trials)
        self._done = 0
        self._rounds: dict[str, int] = {}
        self._resumed: dict[str, int] = {}  # rounds of earlier launches
        self._running: dict[str, tuple[Trial, float | None]] = {}
        self._best: tuple[float, str] | None = None
        self._start = time.monotonic()
        self._last_plain = self._start
        self._notice = ""
        self._live: Live | NotebookBar | None = None

    def __enter__(self) -> "Progress":
        if self.console.is_jupyter:
            self._live = NotebookBar(self._share_done, self._words)
            self._live.start()
        elif self.console.is_terminal:
            self._live = Live(
                get_renderable=self._render, console=self.console, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def stopping(self) -> None:
        """Acknowledge Ctrl-C, also from within a signal handler."""
        self._notice = STOPPING
        if self._live is None:
            self._say(STOPPING)

    def has_slots(self, slots: int) -> None:
        """So many trials run at the same time from now on."""
        self._pace.slots = slots

    def started(self, trial: Trial) -> None:
        self.status["waiting"] -= 1
        self.status["running"] += 1
        self._running[trial.key] = (trial, None)

    def resumed(self, trial: Trial, num_rounds: int) -> None:
        """Rounds of an earlier launch: done, but they say nothing about the speed of this one."""
        self._resumed[trial.key] = self._rounds[trial.key] = num_rounds
        self._done += num_rounds * self._cohorts[trial.key]

    def advanced(self, trial: Trial, rounds: Sequence[Round], beside: float = 0.0) -> None:
        """Rounds were run, and so many seconds were spent beside them."""
        key = trial.key
        before = done = self._rounds.get(key, 0)
        accuracy = self._running.get(key, (trial, None))[1]
        for one in rounds:
            done = max(done, one.number)
            accuracy = one.metrics.get(metrics.ACCURACY, accuracy)
        self._rounds[key] = done
        self._done += (done - before) * self._cohorts[key]
        self._pace.heard(trial, [one for one in rounds if one.number > before], beside)
        self._running[key] = (trial, accuracy)
        self._say_something()

    def survived(self, trial: Trial, incident: str) -> None:
        """Something went wrong, and the trial goes on."""
        self._say(f"  note  {self._names[trial.key]}  {incident}")

    def ended(self, trial: Trial, outcome: str, why: str = "") -> None:
        """`outcome` is done, failed, stopped or interrupted."""
        if trial.key in self._running:
            self.status["running"] -= 1
        else:
            self.status["waiting"] -= 1  # its process died before the trial began
        self._unfinished.pop(trial.key, None)
        _, accuracy = self._running.pop(trial.key, (trial, None))
        self.status[outcome] += 1
        if outcome == "done":  # perhaps before its last round
            left = trial.rounds - self._rounds.get(trial.key, 0)
            self._done += left * self._cohorts[trial.key]
            self._pace.ended(trial)
        if outcome == "done" and accuracy is not None:
            self._best = max(self._best or (0.0, ""), (accuracy, self._names[trial.key]))
        if self._live is None or outcome == "failed":
            shown = why or (f"accuracy {accuracy:.3f}" if accuracy is not None else "")
            self._say(f"{outcome:>6}  {self._names[trial.key]}  {shown}")
        self._say_something()

    def _say_something(self) -> None:
        if isinstance(self._live, NotebookBar):
            self._live.update()
        elif self._live is None and time.monotonic() - self._last_plain > PLAIN_SECONDS:
            self._last_plain = time.monotonic()
            self._say(self._words())

    def _words(self) -> str:
        return " · ".join([self._counts(), *self._speed(), *self._best_so_far()])

    def _share_done(self) -> float:
        return self._done / self._total

    def _say(self, line: str) -> None:
        wide = self._live is None  # lines in a file are not wrapped
        self.console.print(line, markup=False, highlight=False, soft_wrap=wide)

    def _counts(self) -> str:
        status = list(self.status.items())  # the display is drawn in another thread
        return ", ".join(f"{count} {word}" for word, count in status if count)

    def _speed(self) -> list[str]:
        share = f"{self._share_done():.0%}"
        unfinished = list(self._unfinished.values())  # the display is drawn in another thread
        left = self._pace.left({t: t.rounds - self._rounds.get(t.key, 0) for t in unfinished})
        if left is None:
            doing = "estimating" if self._rounds else "starting"
            return [share, doing] if unfinished else [share]
        rounds = sum(self._rounds.values()) - sum(self._resumed.values())
        pace = f"{rounds / (time.monotonic() - self._start):.1f} rounds/s"
        time_left = timedelta(seconds=round(left.seconds))
        return [share, pace, f"ETA {time_left}" if left.is_all else f"ETA more than {time_left}"]

    def _best_so_far(self) -> list[str]:
        return [f"best {self._best[0]:.3f} {self._best[1]}"] if self._best else []

    def _render(self) -> RenderableType:
        running = Table.grid(padding=(0, 2))
        running.add_column(no_wrap=True, overflow="ellipsis")
        running.add_column(no_wrap=True, min_width=len("round 1000/1000"))
        running.add_column(no_wrap=True, min_width=len("accuracy 0.000"))
        for trial, accuracy in list(self._running.values())[:MAX_ROWS]:
            shown = "" if accuracy is None else f"accuracy {accuracy:.3f}"
            done = f"round {self._rounds.get(trial.key, 0)}/{trial.rounds}"
            running.add_row(Text(f"  {self._names[trial.key]}"), done, shown)
        hidden = len(self._running) - MAX_ROWS
        bar = Table.grid(padding=(0, 1))  # a bar of its own does not end its line
        bar.add_row(
            ProgressBar(total=self._total, completed=self._done, width=30),
            " · ".join(self._speed()),
        )
        lines: list[RenderableType] = [Text(self._counts()), bar, running]
        if hidden > 0:
            lines.append(Text(f"  and {hidden} more"))
        lines += [Text(text, no_wrap=True, overflow="ellipsis") for text in self._best_so_far()]
        if self._notice:
            lines.append(Text(self._notice))
        return Group(*lines)
