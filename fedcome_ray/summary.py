"""The table at the end of a launch: accuracy of the last round, mean and spread over seeds."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from fedcome_ray.config import Trial
from fedcome_ray.grid import flatten

Cells = dict[tuple[str, ...], dict[str, list[float]]]


def result_table(trials: Sequence[Trial], accuracy: Mapping[str, float]) -> Table:
    """Rows and columns are the settings in which the trials differ; seeds are averaged.

    `accuracy` is by trial key; cells without a finished trial stay empty.
    """
    settings = {trial.key: flatten(trial.model_dump(mode="json")) for trial in trials}
    row_names, column_name = _layout(list(settings.values()))
    cells: Cells = {}
    columns: dict[str, None] = {}
    for trial in trials:
        own = settings[trial.key]
        column = _show(own.get(column_name)) if column_name else "accuracy"
        columns.setdefault(column)
        row = cells.setdefault(tuple(_show(own.get(name)) for name in row_names), {})
        row.setdefault(column, [])
        if trial.key in accuracy:
            row[column].append(100 * accuracy[trial.key])

    table = Table()
    for name in row_names:
        table.add_column(name.removesuffix(".name"))
    for column in columns:
        heading = column if column_name is None else f"{column_name}\n{column}"
        table.add_column(heading, justify="right", no_wrap=True)
    best = {
        column: max((mean(r[column]) for r in cells.values() if r.get(column)), default=None)
        for column in columns
    }
    for labels, row in cells.items():
        table.add_row(*labels, *(_cell(row.get(column, []), best[column]) for column in columns))
    return table


def labels(trials: Sequence[Trial]) -> dict[str, str]:
    """A name for each trial, by key; where names are the same, with what tells them apart."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.name, []).append(trial)
    found: dict[str, str] = {}
    for group in groups.values():
        settings = [flatten(trial.model_dump(mode="json")) for trial in group]
        texts = [trial.name for trial in group]
        for name in {name: None for own in settings for name in own}:
            shown = [_show(own.get(name)) for own in settings]
            longer = [f"{t} {name.split('.')[-1]}={v}" for t, v in zip(texts, shown, strict=True)]
            if len(set(longer)) > len(set(texts)):
                texts = longer
        found |= {trial.key: text for trial, text in zip(group, texts, strict=True)}
    return found


def _layout(settings: list[dict[str, Any]]) -> tuple[list[str], str | None]:
    """The settings that vary, as rows; the last one without a name of its own, as columns."""
    names = {name: None for own in settings for name in own}
    varying = [
        name
        for name in names
        if name != "seed" and len({_show(own.get(name)) for own in settings}) > 1
    ]
    # A method's own settings follow its name; they are worth a column only if they vary alone.
    kinds = {n.removesuffix(".name") for n in varying if n.endswith(".name")}
    varying = [n for n in varying if n.endswith(".name") or n.split(".")[0] not in kinds]
    plain = [name for name in varying if not name.endswith(".name")]
    column = plain[-1] if plain else None
    return [name for name in varying if name != column] or ["method.name"], column


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(values: list[float], best: float | None) -> str:
    if not values:
        return "-"
    text = f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
    return f"[bold]{text}[/bold]" if mean(values) == best else text
