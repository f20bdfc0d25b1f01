"""Who beats whom: for each pair of methods, how often one ends ahead of the other.

What is compared is the mean accuracy over the last tenth of the rounds, as in the claims. Two
methods meet where both have a finished trial of the same cell, seed and length; what was not run is
not counted. Equal accuracies are a tie, which is half a win for each. A trial that diverged loses
to one that did not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from . import labels, scores
from .study import Study
from .tables import TextTable

ALL = "all others"
NO_SCORES = pd.DataFrame(columns=["trial_key", "cell", "seed", "rounds", "method.name", "value"])
CAPTION = (
    "How often the method of the row is ahead of the method of the column, over cells of the table "
    "and seeds: share of wins, then wins:losses, and :ties if there are any. Compared is the mean "
    "over the last tenth of the rounds; a tie is half a win; only trials of the same cell, seed "
    "and length meet. The share against all others is the mean of the row, so that who met "
    "somebody more often is not rewarded for it. Seeds of a cell and cells of a grid have much in "
    "common, so this describes what was run and is no test."
)


@dataclass(frozen=True)
class WinTable(TextTable):
    """Methods by methods, the best first."""

    counts: pd.DataFrame
    """A row for each pair: method, other, won, lost, tied, share."""


def wins_of(study: Study, _at: str) -> WinTable | None:
    return win_table([study], f"{study.grid}_wins", "Who beats whom")


def win_table(studies: Sequence[Study], name: str, title: str) -> WinTable | None:
    """None unless three methods have met: two are compared by their table."""
    counts = count(_meetings(studies))
    if counts["method"].nunique() < 3:
        return None
    total = counts.groupby("method", sort=False).agg(
        won=("won", "sum"), lost=("lost", "sum"), tied=("tied", "sum"), share=("share", "mean")
    )
    total = total.reset_index().assign(other=ALL)
    order = list(total.sort_values("share", ascending=False, kind="stable")["method"])
    everything = pd.concat([counts, total], ignore_index=True)
    rows = [
        {"method": method} | {other: _text(everything, method, other) for other in (*order, ALL)}
        for method in order
    ]
    return WinTable(name, title, CAPTION, pd.DataFrame(rows), everything)


def count(meetings: pd.DataFrame) -> pd.DataFrame:
    """A row for each ordered pair of columns; NaN is a trial that is not there."""
    rows = []
    for method in meetings:
        for other in meetings:
            both = meetings[[method, other]].dropna() if method != other else meetings.iloc[:0]
            if len(both):
                ours, theirs = both[method], both[other]
                results = (ours > theirs).sum(), (ours < theirs).sum(), (ours == theirs).sum()
                rows.append((method, other, *map(int, results)))
    counts = pd.DataFrame(rows, columns=["method", "other", "won", "lost", "tied"])
    return counts.assign(share=_share(counts))


def _meetings(studies: Iterable[Study]) -> pd.DataFrame:
    """Scores of methods in columns, with a row for each cell, seed and length.

    A trial that several grids share is counted once.
    """
    contests = [_contest(study) for study in studies if _compares(study)]
    scored = pd.concat(contests or [NO_SCORES]).drop_duplicates("trial_key")
    methods = sorted(scored["method.name"].unique(), key=lambda m: labels.order("method.name", m))
    table = scored.pivot_table("value", ["cell", "seed", "rounds"], "method.name", aggfunc="last")
    return table.reindex(columns=methods).rename(columns=lambda m: labels.value("method.name", m))


def _compares(study: Study) -> bool:
    return study.layout.curve == ["method.name"]


def _contest(study: Study) -> pd.DataFrame:
    scored = scores.score(study.finished, scores.ACCURACY["tail"])
    value = scored["value"].astype(float).round(10).fillna(-np.inf)
    rows = [row for _, row in scored.iterrows()]
    cells = [f"{study.grid}: {labels.join(study.layout.rivals, row)}" for row in rows]
    return scored.assign(value=value, cell=cells)[list(NO_SCORES)]


def _share(counts: pd.DataFrame) -> "pd.Series[float]":
    num = counts["won"] + counts["lost"] + counts["tied"]
    return (counts["won"] + counts["tied"] / 2) / num


def _text(counts: pd.DataFrame, method: str, other: str) -> str:
    found = counts[(counts["method"] == method) & (counts["other"] == other)]
    if found.empty:
        return "" if method == other else "–"
    own = found.iloc[0]
    results = [own["won"], own["lost"], *([own["tied"]] if own["tied"] else [])]
    return f"{100 * own['share']:.0f} % ({':'.join(str(n) for n in results)})"
