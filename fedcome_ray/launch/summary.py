"""The table at the end of a launch: mean and spread over seeds of what the grid is about.

Of accuracy, the mean of the last tenth of the rounds comes first, since a single round swings.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, NamedTuple, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedcome_ray.experiments.labels import label
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods import REFERENCES


class Reached(NamedTuple):
    """The test accuracy at the end of a trial, in %."""

    tail: float  # mean of the last tenth of the rounds
    last: float  # of the last round
    stopped_at: int | None = None  # the rounds done, if it ended early


ValueT = TypeVar("ValueT")
Cells = dict[tuple[str, ...], dict[str, list[ValueT]]]
KINDS = ("method", "sampler", "model")
TELLING = ("method", "sampler", "data.dataset")  # looked at first


def accuracy_table(trials: Sequence[Trial], reached: Mapping[str, Reached]) -> Group:
    """Rows and columns are the settings in which the trials differ; only seeds are averaged.

    `reached` is by trial key; cells without a finished trial stay empty.
    """
    is_held_out = any(getattr(trial.data, "validation", None) for trial in trials)
    side = "Validation" if is_held_out else "Test"
    title = f"{side} accuracy, %{{across}}: last tenth of the rounds, last round"
    if any(one.stopped_at is not None for one in reached.values()):
        title += ", (round where it stopped, on average)"
    is_one_rule = len({trial.stop for trial in trials}) == 1  # else lengths are not to be compared
    words: Callable[[list[Reached], bool], str] = _accuracy_words if is_one_rule else _unranked
    return _table(trials, reached, title, "accuracy", _tail, words)


def cost_table(trials: Sequence[Trial], seconds: Mapping[str, float]) -> Group:
    """What a round took, laid out as accuracies are; `seconds` is by trial key."""
    title = "Milliseconds of a round{across}: the median of all rounds"
    return _table(trials, seconds, title, "ms", lambda own: -mean(own), _cost_words)


def _table(
    trials: Sequence[Trial],
    values: Mapping[str, ValueT],
    title: str,
    heading: str,
    score: Callable[[list[ValueT]], float],
    words: Callable[[list[ValueT], bool], str],
) -> Group:
    """`score` is the better the larger, `words` are those of a cell, which may be the best."""
    points = {trial.key: _point(trial) for trial in trials}
    rows, column = _rows_and_column(list(points.values()))
    cells: Cells[ValueT] = {}
    references = set()
    for key, point in points.items():
        labels = tuple(point.get(name, "") for name in rows)
        if point["method"] in REFERENCES:
            references.add(labels)
        row = cells.setdefault(labels, {})
        found = row.setdefault(point[column] if column else heading, [])
        if key in values:
            found.append(values[key])
    across = f", by {column}" if column else ""
    # A table would cut its own title.
    texts = _texts(cells, references, score, words)
    return Group(Text(title.format(across=across)), Folded(rows, texts))


def _texts(
    cells: Cells[ValueT],
    references: Container[tuple[str, ...]],
    score: Callable[[list[ValueT]], float],
    words: Callable[[list[ValueT], bool], str],
) -> "Texts":
    """The rows in `references` do not compete."""
    columns = list({column: None for row in cells.values() for column in row})
    rivals = [row for labels, row in cells.items() if labels not in references]
    best = {
        column: max((score(row[column]) for row in rivals if row.get(column)), default=None)
        for column in columns
    }

    def text(labels: tuple[str, ...], column: str) -> str:
        own = cells[labels].get(column)
        is_rival = labels not in references
        return words(own, is_rival and score(own) == best[column]) if own else "-"

    return {labels: {column: text(labels, column) for column in columns} for labels in cells}


Texts = dict[tuple[str, ...], dict[str, str]]  # labels of a row -> column -> cell


@dataclass(frozen=True)
class Folded:
    """A table that goes on below itself if it has more columns than the terminal is wide."""

    rows: Sequence[str]  # the headings of the labels
    texts: Texts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = list(next(iter(self.texts.values()), {}))
        while left:
            count = next(
                (n for n in range(len(left), 1, -1) if self._fits(left[:n], console, options)), 1
            )
            yield self._part(left[:count])
            left = left[count:]
            if left:
                yield ""

    def _fits(self, columns: list[str], console: Console, options: ConsoleOptions) -> bool:
        wide = options.update(max_width=10_000)
        return Measurement.get(console, wide, self._part(columns)).maximum <= options.max_width

    def _part(self, columns: list[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
        for name in self.rows:
            table.add_column(name, overflow="fold")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for labels, cells in self.texts.items():
            table.add_row(*labels, *(cells[column] for column in columns))
        return table


def axes_of(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """The settings in which trials differ, with their values; what goes with others is left out."""
    points = [{**_point(trial), "seed": str(trial.seed)} for trial in trials]
    return {
        name: list(dict.fromkeys(point[name] for point in points if name in point))
        for name in _telling(points)
    }


def _point(trial: Trial) -> dict[str, str]:
    """The settings of a trial but its seed; a method with its own settings is one of them."""
    own = flatten(trial.model_dump(mode="json"))
    plain = {n: _show(v) for n, v in own.items() if n != "seed" and n.split(".")[0] not in KINDS}
    return {**{kind: label(getattr(trial, kind)) for kind in KINDS}, **plain}


def _rows_and_column(points: list[dict[str, str]]) -> tuple[list[str], str | None]:
    """The settings that tell trials apart: as rows, and the last one that is no kind as columns."""
    telling = _telling(points)
    plain = [name for name in telling if name not in KINDS]
    column = plain[-1] if plain and all(plain[-1] in point for point in points) else None
    return [name for name in telling if name != column] or ["method"], column


def _telling(points: list[dict[str, str]]) -> list[str]:
    """The settings that tell trials apart.

    What goes without saying is left out: a dataset's own settings vary with the dataset.
    """
    names = dict.fromkeys(TELLING) | {name: None for point in points for name in point}
    telling: list[str] = []
    for name in [*(name for name in names if name != "model"), "model"]:
        if _count(points, [*telling, name]) > _count(points, telling):
            telling.append(name)
    return telling


def _count(points: list[dict[str, str]], names: list[str]) -> int:
    """How many points can be told apart by these settings."""
    return len({tuple(point.get(name) for name in names) for point in points})


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tail(values: list[Reached]) -> float:
    return mean(one.tail for one in values)


def _accuracy_words(values: list[Reached], is_best: bool) -> str:
    spread = f"±{stdev(one.tail for one in values):.1f}" if len(values) > 1 else ""
    text = _emphasised(f"{_tail(values):.1f}{spread}", is_best)
    stopped = [one.stopped_at for one in values if one.stopped_at is not None]
    where = f" ({mean(stopped):.0f})" if stopped else ""
    return f"{text} {mean(one.last for one in values):.1f}{where}"


def _unranked(values: list[Reached], _is_best: bool) -> str:
    return _accuracy_words(values, is_best=False)


def _cost_words(seconds: list[float], is_best: bool) -> str:
    spread = f"±{1000 * stdev(seconds):.1f}" if len(seconds) > 1 else ""
    return _emphasised(f"{1000 * mean(seconds):.1f}{spread}", is_best)


def _emphasised(text: str, is_best: bool) -> str:
    return f"[bold]{text}[/bold]" if is_best else text
