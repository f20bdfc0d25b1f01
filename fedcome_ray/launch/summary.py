"""The table at the end of a launch: mean and spread over seeds of the accuracy that was reached.

The mean of the last tenth of the rounds comes first, since a single round swings.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial, label


class Reached(NamedTuple):
    """The test accuracy at the end of a trial, in %."""

    tail: float  # mean of the last tenth of the rounds
    last: float  # of the last round


Cells = dict[tuple[str, ...], dict[str, list[Reached]]]
KINDS = ("method", "sampler", "model")
TELLING = ("method", "sampler", "data.dataset")  # looked at first


def result_table(trials: Sequence[Trial], reached: Mapping[str, Reached]) -> Group:
    """Rows and columns are the settings in which the trials differ; only seeds are averaged.

    `reached` is by trial key; cells without a finished trial stay empty.
    """
    points = {trial.key: _point(trial) for trial in trials}
    rows, column = _rows_and_column(list(points.values()))
    cells: Cells = {}
    for key, point in points.items():
        row = cells.setdefault(tuple(point.get(name, "") for name in rows), {})
        values = row.setdefault(point[column] if column else "accuracy", [])
        if key in reached:
            values.append(reached[key])
    is_held_out = any(getattr(trial.data, "validation", None) for trial in trials)
    return _render(cells, rows, column, "Validation" if is_held_out else "Test")


def _point(trial: Trial) -> dict[str, str]:
    """The settings of a trial but its seed; a method with its own settings is one of them."""
    own = flatten(trial.model_dump(mode="json"))
    plain = {n: _show(v) for n, v in own.items() if n != "seed" and n.split(".")[0] not in KINDS}
    return {**{kind: label(getattr(trial, kind)) for kind in KINDS}, **plain}


def _rows_and_column(points: list[dict[str, str]]) -> tuple[list[str], str | None]:
    """The settings that tell trials apart: as rows, and the last one that is no kind as columns.

    What goes without saying is left out: a dataset's own settings vary with the dataset.
    """
    names = dict.fromkeys(TELLING) | {name: None for point in points for name in point}
    telling: list[str] = []
    for name in [*(name for name in names if name != "model"), "model"]:
        if _count(points, [*telling, name]) > _count(points, telling):
            telling.append(name)
    plain = [name for name in telling if name not in KINDS]
    column = plain[-1] if plain and all(plain[-1] in point for point in points) else None
    return [name for name in telling if name != column] or ["method"], column


def _count(points: list[dict[str, str]], names: list[str]) -> int:
    """How many points can be told apart by these settings."""
    return len({tuple(point.get(name) for name in names) for point in points})


def _render(cells: Cells, rows: list[str], column_name: str | None, side: str) -> Group:
    columns = list({column: None for row in cells.values() for column in row})
    across = f", by {column_name}" if column_name else ""
    words = f"{side} accuracy, %{across}: last tenth of the rounds, last round"
    title = Text(words)  # a table would cut its own title
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name in rows:
        table.add_column(name)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    best = {
        column: max((_tail(row[column]) for row in cells.values() if row.get(column)), default=None)
        for column in columns
    }
    for labels, row in cells.items():
        table.add_row(*labels, *(_cell(row.get(column, []), best[column]) for column in columns))
    return Group(title, table)


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tail(values: list[Reached]) -> float:
    return mean(one.tail for one in values)


def _cell(values: list[Reached], best: float | None) -> str:
    if not values:
        return "-"
    spread = f"±{stdev(one.tail for one in values):.1f}" if len(values) > 1 else ""
    text = f"{_tail(values):.1f}{spread}"
    text = f"[bold]{text}[/bold]" if _tail(values) == best else text
    return f"{text} {mean(one.last for one in values):.1f}"
