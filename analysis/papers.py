"""The paper's table of a grid as it is, for readers of trials that cannot be set beside it."""

import pandas as pd

from . import labels, render
from .study import Study
from .tables import Table, TextTable, paper_table

CAPTION = "The paper's numbers. What was run here is another experiment, so no difference is taken."


def papers_own_table(study: Study, shown: Table) -> TextTable | None:
    """None if there is no such table, or if all of it stands beside ours in the table `shown`."""
    paper = paper_table(study.grid)
    if paper is None or shown.cells["paper"].notna().sum() >= len(paper):
        return None
    rows, column = list(study.layout.rows), study.layout.column
    assert column is not None  # every table of the paper has one
    paper = labels.in_order(paper, [*rows, column])
    lines = [_line(rows, column, own) for _, own in paper.groupby(rows, sort=False)]
    name, title = f"{study.grid}_paper", f"The paper's table: {study.layout.title}"
    return TextTable(name, title, CAPTION, pd.DataFrame(lines))


def _line(rows: list[str], column: str, own: pd.DataFrame) -> dict[str, str]:
    line = {labels.name(key): labels.value(key, own[key].iloc[0]) for key in rows}
    for _, cell in own.iterrows():
        text = render.plus_minus(cell["paper"], cell["paper_std"], digits=2)
        line[labels.value(column, cell[column])] = text
    return line
