"""The tables: which setting goes where, means over seeds, the paper's numbers beside them.

A table's `cells` are a tidy frame, one row for each cell; `render.py` writes it down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis import labels, scores
from analysis.scores import Measure

PAPER_TABLES = Path(__file__).parent / "paper_tables"
MISSING = {"FAILED": "failed", "KILLED": "interrupted", "RUNNING": "running"}


class Layout(NamedTuple):
    """How the trials of a grid make a table."""

    title: str
    rows: tuple[str, ...] = ("method.name", "setting")
    column: str | None = None
    rivals: tuple[str, ...] = ()
    """Cells that agree in these settings compete for the best."""


LAYOUTS = {
    "full_participation": Layout(
        "Full participation", ("method.name",), "data.dataset", ("data.dataset",)
    ),
    "heterogeneity": Layout(
        "Heterogeneity: classes per client",
        ("method.name",),
        "data.partition.classes",
        ("data.partition.classes",),
    ),
    "partial_participation": Layout(
        "Partial participation",
        ("method.name", "sampler.name"),
        "participation",
        ("sampler.name", "participation"),
    ),
    "sensitivity": Layout(
        "Sensitivity of FedCOME to the sampler", ("sampler.ema",), "sampler.greedy_fraction"
    ),
    "client_loss": Layout(
        "Client loss study", ("method.name", "sampler.name"), "participation", ("participation",)
    ),
    "fairness": Layout(
        "Fairness",
        ("method.name", "data.test_split"),
        "data.dataset",
        ("data.test_split", "data.dataset"),
    ),
    "search": Layout("Search space of the hyper-parameters", rivals=("method.name",)),
    "controls": Layout("Controls: is it only a longer step?"),
    "scaling": Layout(
        "Cost of a round", ("method.name",), "data.num_clients", ("data.num_clients",)
    ),
}


@dataclass(frozen=True)
class Table:
    """Cells with the columns: keys, mean, std, seeds, state, paper, paper_std, difference, rank."""

    name: str
    title: str
    caption: str
    rows: tuple[str, ...]
    column: str
    cells: pd.DataFrame
    digits: int = 2


def layout_of(grid: str) -> Layout:
    return LAYOUTS.get(grid, Layout(grid))


def main_table(frame: pd.DataFrame, measure: Measure) -> Table:
    """The table of a grid: one measure, settings in rows and columns."""
    grid = frame["grid"].iloc[0]
    layout = layout_of(grid)
    scored, left_out = comparable(with_setting(scores.score(frame, measure)), layout)
    column = layout.column or "measure"
    cells = tabulate(
        scored.assign(measure="accuracy"),
        (*layout.rows, column),
        (*layout.rivals, "measure") if layout.column is None else layout.rivals,
        paper_table(grid),
    )
    caption = f"{measure.words}. {caption_of(scored, left_out)}"
    return Table(grid, layout.title, caption, layout.rows, column, cells, measure.digits)


def fairness_table(frame: pd.DataFrame, clients: pd.DataFrame) -> Table:
    """Indices of the distribution of client accuracy, best first by the standard deviation."""
    rows = ("data.dataset", "data.test_split", "method.name")
    indices = scores.fairness(clients).rename_axis("run_id").reset_index()
    long = indices.melt("run_id", var_name="measure", value_name="value")
    long["more_is_better"] = long["measure"].map(scores.FAIRNESS)
    scored, left_out = comparable(scores.trials(frame), layout_of("fairness"))
    cells = tabulate(
        scored.merge(long, on="run_id"), (*rows, "measure"), (*rows[:2], "measure"), None
    )
    caption = (
        f"Client test accuracy of the last round in %, and Jain's and Gini's indices. "
        f"{caption_of(scored, left_out)}"
    )
    return Table("fairness_indices", "Fairness indices", caption, rows, "measure", cells)


def comparable(scored: pd.DataFrame, layout: Layout) -> tuple[pd.DataFrame, int]:
    """The trials that may be averaged, and how many were left out for it.

    A cell averages seeds and nothing else. If trials of one cell differ in other settings, as after
    `--set rounds=5`, those with the most rounds, then the most trials, are the cell.
    """
    other = [name for name in scores.settings(scored) if name not in {"seed", "value"}]
    variant = scored.groupby(other, dropna=False).ngroup()
    keys = [name for name in (*layout.rows, layout.column) if name in scored]
    size = variant.map(variant.value_counts())
    ranked = scored.assign(variant=variant, size=size).sort_values(
        ["rounds", "size", "launch", "variant"], ascending=False
    )
    chosen = ranked.groupby(keys, dropna=False)["variant"].transform("first")
    kept = ranked[ranked["variant"] == chosen].sort_index().drop(columns=["variant", "size"])
    return kept, len(scored) - len(kept)


def tabulate(
    scored: pd.DataFrame, keys: Sequence[str], rivals: Sequence[str], paper: pd.DataFrame | None
) -> pd.DataFrame:
    """Means over seeds, the paper's numbers, differences and ranks: one row for each cell."""
    cells = pd.DataFrame(
        [
            dict(zip(keys, group, strict=True)) | _summary(own)
            for group, own in scored.groupby(list(keys), dropna=False, sort=False)
        ]
    )
    if paper is None:
        cells["paper"] = cells["paper_std"] = float("nan")
        is_same_data = pd.Series(data=True, index=cells.index)
    else:
        cells = cells.merge(paper, how="outer", on=list(keys), suffixes=("", "_paper"))
        is_same_data = cells["data.dataset"] == cells.get(
            "data.dataset_paper", cells["data.dataset"]
        )
    cells["state"] = cells["state"].fillna("not run")
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    # Digits cannot be subtracted from CIFAR-10.
    cells["difference"] = (cells["mean"] - cells["paper"]).where(is_same_data)
    cells["rank"] = _ranks(cells, rivals)
    return _sorted(cells, keys)


def paper_table(grid: str) -> pd.DataFrame | None:
    """The paper's numbers under our names of settings, None if it has none for this grid."""
    path = PAPER_TABLES / f"{grid}.csv"
    if not path.exists():
        return None
    paper = pd.read_csv(path).rename(columns={"accuracy": "paper", "std": "paper_std"})
    if "paper_std" not in paper:
        paper["paper_std"] = float("nan")
    if "data.dataset" not in paper:
        paper["data.dataset"] = "cifar10"
    return paper


def with_setting(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `setting`: what sets a trial apart from others of its method.

    A value that most trials of the method have goes without saying.
    """
    names = [n for n in scores.settings(frame) if n not in {"method.name", "seed", "value"}]
    words: dict[Any, list[str]] = {index: [] for index in frame.index}
    for _, own in frame.groupby("method.name"):
        for setting in names:
            texts = own[setting].map(lambda raw, s=setting: labels.value(s, raw))
            counts = texts.value_counts()
            usual = counts.index[0] if counts.iloc[0] > len(texts) / 2 else None
            for index, text in texts[texts != usual].items():
                words[index].append(f"{setting.split('.')[-1]}={text}")
    return frame.assign(setting=[" ".join(words[index]) for index in frame.index])


def caption_of(scored: pd.DataFrame, left_out: int) -> str:
    """Where the numbers come from, and what is missing."""
    finished = scored[scored["status"] == "FINISHED"]
    seeds = finished["seed"].nunique()
    spread = f"mean ± sample std over {seeds} seeds" if seeds > 1 else "one seed, so no spread"
    rounds = "/".join(str(n) for n in sorted(scored["rounds"].unique()))
    datasets = ", ".join(labels.value("data.dataset", d) for d in scored["data.dataset"].unique())
    commits = ", ".join(sorted({f"{c[:10]}{_dirty(d)}" for c, d in _commits(scored)}))
    parts = [
        f"{spread}; profile {scored['profile'].iloc[0]}",
        datasets,
        f"{rounds} rounds",
        f"{len(finished)} of {len(scored)} trials finished",
        *(
            f"{count} {MISSING[s]}"
            for s, count in scored["status"].value_counts().items()
            if s in MISSING
        ),
        f"commit {commits}",
    ]
    if left_out:
        parts.append(f"{left_out} trials with other settings left out")
    return ", ".join(parts) + "."


def _commits(scored: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(scored["commit"], scored["dirty"], strict=True))


def _dirty(flag: str) -> str:
    return " with changes" if flag == "true" else ""


def _summary(own: pd.DataFrame) -> dict[str, Any]:
    values = own.loc[own["status"] == "FINISHED", "value"]
    return {
        "data.dataset": own["data.dataset"].iloc[0],
        "mean": values.mean(skipna=False),
        "std": values.std(skipna=False),
        "seeds": len(values),
        "state": "finished" if len(values) else MISSING.get(own["status"].iloc[0], "not run"),
        "more_is_better": own["more_is_better"].iloc[0],
    }


def _ranks(cells: pd.DataFrame, rivals: Sequence[str]) -> "pd.Series[float]":
    """1 for the best of its rivals, 2 for the runner-up."""
    sign = cells["more_is_better"].map({True: -1.0, False: 1.0})
    signed = (cells["mean"] * sign).round(10)
    if not rivals:
        return signed.rank(method="min")
    return signed.groupby([cells[name] for name in rivals], dropna=False).rank(method="min")


def _sorted(cells: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    def position(row: "pd.Series[Any]") -> tuple[Any, ...]:
        return tuple(labels.order(key, row[key]) for key in keys)

    by_position = sorted(cells.index, key=lambda index: position(cells.loc[index]))
    return cells.loc[by_position].reset_index(drop=True)
