"""The tables: which setting goes where, means over seeds, the paper's numbers beside them.

A table's `cells` are a tidy frame, one row for each cell; `render.py` writes it down.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedcome_ray.trials.provenance import cautions

from . import labels, scores
from .scores import Measure
from .study import Study

PAPER_TABLES = Path(__file__).parent / "paper_tables"
COMMIT = re.compile("[0-9a-f]{40}")
MISSING = {"FAILED": "failed", "KILLED": "interrupted", "RUNNING": "running"}


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


@dataclass(frozen=True)
class TextTable:
    """A table of words; its first column names the rows."""

    name: str
    title: str
    caption: str
    texts: pd.DataFrame


def accuracy_table(study: Study, at: str) -> Table:
    return main_table(study, scores.ACCURACY[at])


def cost_table(study: Study, _at: str) -> Table:
    return main_table(study, scores.COST)


def main_table(study: Study, measure: Measure) -> Table:
    """The table of a grid: one measure, settings in rows and columns."""
    layout = study.layout
    scored = scores.score(study.frame, measure).assign(measure="accuracy")
    column = layout.column or "measure"
    cells = tabulate(scored, (*layout.rows, column), layout.rivals, paper_table(study.grid))
    caption = f"{measure.words}. {caption_of(study)}"
    if cells.loc[cells["seeds"] > 0, "seeds"].nunique() > 1:
        caption += " [n]: a mean over n seeds only."
    if cells["paper"].notna().any() and cells["difference"].isna().all():
        caption += " The paper's numbers are for other data, so no difference is taken."
    return Table(study.grid, layout.title, caption, layout.rows, column, cells, measure.digits)


def fairness_table(study: Study, _at: str) -> Table | None:
    """Indices of the distribution of client accuracy after the last round."""
    if study.clients.empty:
        return None
    rows = ("data.dataset", "data.test_split", "method.name")
    indices = scores.fairness(study.clients).rename_axis("run_id").reset_index()
    long = indices.melt("run_id", var_name="measure", value_name="value")
    long["more_is_better"] = long["measure"].map(scores.FAIRNESS)
    scored = scores.trials(study.frame).merge(long, on="run_id")
    cells = tabulate(scored, (*rows, "measure"), (*rows[:2], "measure"), None)
    caption = (
        "Test accuracy of the clients after the last round in %; Jain's index is 1 and Gini's 0 if "
        f"all are served alike. {caption_of(study)}"
    )
    return Table("fairness_indices", "Fairness indices", caption, rows, "measure", cells, digits=3)


def other_metrics_table(study: Study, shown: Collection[str]) -> TextTable | None:
    """Whatever trials recorded that is not `shown` elsewhere; no name of it need be known."""
    names = sorted(set(scores.recorded(study.finished)) - set(shown))
    if not names:
        return None
    means = {name: _means_by_method(study.finished, name) for name in names}
    methods = sorted(set().union(*means.values()), key=lambda m: labels.order("method.name", m))
    rows = [
        {"metric": name} | {labels.value("method.name", m): _short(own.get(m)) for m in methods}
        for name, own in means.items()
    ]
    caption = "Values of the last round, means over the trials of a method that recorded any."
    return TextTable(f"{study.grid}_other_metrics", "Other metrics", caption, pd.DataFrame(rows))


def _short(value: float | None) -> str:
    if value is None:
        return "–"
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def _means_by_method(rounds: pd.DataFrame, metric: str) -> dict[str, float]:
    """A NaN at the end of a trial is a result, as in the other tables."""
    has_any = rounds.groupby("run_id")[metric].transform("count") > 0
    last = rounds[has_any].sort_values("round").groupby("run_id").tail(1)
    by_method = last.groupby("method.name")[metric]
    return {str(method): float(own.mean(skipna=False)) for method, own in by_method}


def search_space_table(study: Study | None) -> TextTable:
    """The paper's hyper-parameters of the baselines, and what was tried and best here."""
    space = pd.read_csv(PAPER_TABLES / "search_space.csv", dtype=str)
    space["tried here"] = space["best here"] = "not run"
    if study is not None:
        scored = scores.score(study.frame, scores.ACCURACY["last"])
        for index, row in space.iterrows():
            own = scored[scored["method.name"] == row["method.name"]]
            space.loc[index, ["tried here", "best here"]] = _tried(
                own, f"method.{row['parameter']}"
            )
    space["method.name"] = [labels.value("method.name", name) for name in space["method.name"]]
    space["values"] = space["values"].str.replace("|", ", ")
    space = space.rename(columns={"method.name": "method", "values": "paper"})
    caption = caption_of(study) if study is not None else "The grid search has not been run."
    return TextTable("search_space", "Search space of the baselines", caption, space)


def _tried(own: pd.DataFrame, setting: str) -> list[str]:
    """The values of a setting, and the one of the best finished trial."""
    if setting not in own:
        return ["–", "–"]
    values = ", ".join(labels.value(setting, raw) for raw in sorted(own[setting].unique()))
    best = own.dropna(subset="value").sort_values("value")[setting].tail(1)
    return [values or "not run", labels.value(setting, best.iloc[0]) if len(best) else "not run"]


def datasets_table(studies: Iterable[Study]) -> TextTable:
    """Sizes of the datasets: the paper's, and those of the populations that were run."""
    paper = pd.read_csv(PAPER_TABLES / "datasets.csv", dtype=str)
    ours = {name: own for study in studies for name, own in _population_sizes(study).items()}
    rows = []
    for name in dict.fromkeys([*paper["data.dataset"], *ours]):
        label = labels.value("data.dataset", name)
        for _, row in paper[paper["data.dataset"] == name].iterrows():
            rows.append({"dataset": label, "source": "paper", **row.drop("data.dataset")})
        rows.append({"dataset": label, "source": "ours", **ours.get(name, {"train": "not run"})})
    texts = pd.DataFrame(rows).fillna("").rename(columns=lambda name: name.replace("_", " "))
    caption = "Per client: means; classes per client: the most that a client has."
    return TextTable("datasets", "Datasets", caption, texts)


def _population_sizes(study: Study) -> dict[str, dict[str, str]]:
    """By dataset, as far as the store holds them."""
    names = scores.trials(study.frame).set_index("run_id")["data.dataset"]
    sizes = {str(name): {"train": "not stored"} for name in names}
    for run_id, own in study.population.groupby("run_id"):
        classes = [text.split() for text in own["classes"]]
        sizes[names[run_id]] = {
            "train": str(own["num_train"].sum()),
            "test": str(own["num_test"].sum()),
            "classes": str(len(set().union(*classes))),
            "clients": str(len(own)),
            "train_per_client": f"{own['num_train'].mean():.0f}",
            "test_per_client": f"{own['num_test'].mean():.0f}",
            "classes_per_client": str(max(map(len, classes))),
        }
    return sizes


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
    return labels.in_order(cells, keys).reset_index(drop=True)


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


def caption_of(study: Study) -> str:
    """Where the numbers come from, and what is missing."""
    trials = scores.trials(study.frame)
    finished = trials[trials["status"] == "FINISHED"]
    seeds = finished["seed"].nunique()
    states = trials["status"].map(MISSING).value_counts()
    parts = [
        f"Mean ± sample std over {seeds} seeds" if seeds > 1 else "One seed, so no spread",
        f"profile {study.profile}",
        ", ".join(labels.value("data.dataset", name) for name in trials["data.dataset"].unique()),
        f"{'/'.join(str(n) for n in sorted(trials['rounds'].unique()))} rounds",
        f"{len(finished)} of {len(trials)} trials finished",
        *(f"{count} {state}" for state, count in states.items()),
    ]
    if study.changes:
        parts.insert(1, f"with {study.changes}")
    if aside := study.aside["run_id"].nunique():
        parts.append(f"{aside} with other settings set aside")
    if study.other_profiles:
        parts.append(f"not shown: profile {', '.join(study.other_profiles)}")
    parts += cautions([[found] for text in finished["arithmetic"] if (found := json.loads(text))])
    return "; ".join([*parts, f"commit {commits(trials)}"]) + "."


def commits(trials: pd.DataFrame) -> str:
    pairs = sorted(set(zip(trials["commit"], trials["dirty"], strict=True)))
    short = [(c[:10] if COMMIT.fullmatch(c) else c, d) for c, d in pairs]
    return ", ".join(f"{c} with changes" if d == "true" else c for c, d in short)


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
