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

from fedcome_ray.methods import REFERENCES
from fedcome_ray.trials.provenance import cautions

from . import labels, scores
from .scores import Measure
from .study import Study

PAPER_TABLES = Path(__file__).parent / "paper_tables"
COMMIT = re.compile("[0-9a-f]{40}")
TAILED = (scores.ACCURACY["last"], scores.ACCURACY["best"])  # have the tail beside them
MISSING = {"FAILED": "failed", "KILLED": "interrupted", "RUNNING": "running"}


@dataclass(frozen=True)
class Table:
    """Cells with the columns: keys, mean, std, tail, tail_std, seeds, state, rounds, paper,
    paper_std, difference, rank, length, rule, stopped.
    """

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
    column = layout.column or "measure"
    frame = study.frame
    if "method.name" in layout.rows and len(study.references):
        frame = pd.concat([frame, study.references])
    scored = _scored(frame, measure, study.papers)
    cells = tabulate(scored, (*layout.rows, column), layout.rivals, paper_table(study.grid))
    caption = f"{_words(measure, study.frame)}. {caption_of(study)}"
    if measure in TAILED:
        caption += " tail: mean over the last tenth of the rounds."
    if cells.loc[cells["seeds"] > 0, "seeds"].nunique() > 1:
        caption += " [n]: a mean over n seeds only."
    if "method.name" in cells and cells["method.name"].isin(REFERENCES).any():
        caption += " References are not ranked: they are no federation."
    if cells["length"].any():
        caption += (
            " Lengths differ: ranked only among trials with as many rounds, stopped by one rule."
        )
    return Table(study.grid, layout.title, caption, layout.rows, column, cells, measure.digits)


def aside_table(study: Study, at: str) -> Table | None:
    """The trials that the main table has no place for, each with what it has otherwise."""
    if study.aside.empty:
        return None
    layout, measure = study.layout, scores.ACCURACY[at]
    column = layout.column or "measure"
    rows = tuple(dict.fromkeys([*layout.rows, "changes"]))
    scored = _scored(study.aside, measure, frozenset())
    scored["changes"] = _told_apart(scored, [*layout.keys, "changes"])
    cells = tabulate(scored, (*rows, column), (*layout.rivals, "changes"), None)
    caption = (
        f"{_words(measure, study.aside)}. Trials with other settings than those of profile "
        f"{study.profile}, or than most: experiments of their own, not compared with the paper."
    )
    title = f"{layout.title}: with other settings"
    return Table(f"{study.grid}_aside", title, caption, rows, column, cells, measure.digits)


def _words(measure: Measure, frame: pd.DataFrame) -> str:
    """What is compared; settings may be chosen on training examples that are held out."""
    held_out = frame.get("data.validation", pd.Series(dtype=float)).notna()
    if not held_out.any():
        return measure.words
    some = "" if held_out.all() else "where so marked, "
    return f"{measure.words}; {some}on held-out training examples instead of test examples"


def _told_apart(trials: pd.DataFrame, keys: list[str]) -> "pd.Series[str]":
    """The changes of trials; where that leaves unlike ones in a cell, also what they are."""
    names = list(dict.fromkeys([*keys, "setting"]))
    settings = trials[names].drop_duplicates().groupby(keys, dropna=False).size()
    rivals = trials.join(settings.rename("several"), on=keys)["several"] > 1
    both = trials["changes"].str.cat(trials["setting"], sep=" ").str.strip()
    return trials["changes"].mask(rivals | (trials["changes"] == ""), both)


def _scored(rounds: pd.DataFrame, measure: Measure, papers: Collection[str]) -> pd.DataFrame:
    """Trials with their value, that of the tail, and whether they are the paper's."""
    scored = scores.score(rounds, measure).assign(measure="accuracy", tail=float("nan"))
    if measure in TAILED:
        scored["tail"] = scores.score(rounds, scores.ACCURACY["tail"])["value"]
    return scored.assign(is_papers=scored["run_id"].isin(papers))


def fairness_table(study: Study, _at: str) -> Table | None:
    """Indices of the distribution of client accuracy after the last round."""
    if study.clients.empty:
        return None
    rows = ("data.dataset", "data.test_split", "method.name")
    indices = scores.fairness(study.clients).rename_axis("run_id").reset_index()
    long = indices.melt("run_id", var_name="measure", value_name="value")
    long["more_is_better"] = long["measure"].map(scores.FAIRNESS)
    scored = scores.trials(study.frame).merge(long, on="run_id")
    scored = scored.assign(tail=float("nan"), is_papers=False)
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
        scored = scores.score(study.frame, scores.ACCURACY["tail"])
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
    """Means over seeds, the paper's numbers, differences and ranks: one row for each cell.

    The paper's numbers stand beside trials that are the paper's, and beside those that are not run
    in a column that has such.
    """
    cells = pd.DataFrame(
        [
            dict(zip(keys, group, strict=True))
            | own.iloc[0][[name for name in rivals if name not in keys]].to_dict()
            | _summary(own)
            for group, own in scored.groupby(list(keys), dropna=False, sort=False)
        ]
    )
    cells = _beside_paper(cells, keys, paper)
    cells["state"] = cells["state"].fillna("not run")
    cells["seeds"] = cells["seeds"].fillna(0).astype(int)
    cells["difference"] = cells["mean"] - cells["paper"]
    cells["length"] = _lengths(cells, rivals)
    cells["rank"] = _ranks(cells, [*rivals, "rounds", "rule"])
    return labels.in_order(cells, keys).reset_index(drop=True)


def _beside_paper(
    cells: pd.DataFrame, keys: Sequence[str], paper: pd.DataFrame | None
) -> pd.DataFrame:
    if paper is None or not cells["is_papers"].any():
        return cells.assign(paper=float("nan"), paper_std=float("nan"))
    columns = cells.loc[cells["is_papers"], keys[-1]]
    paper = paper[paper[keys[-1]].isin(columns)][[*keys, "paper", "paper_std"]]
    cells = cells.merge(paper, how="outer", on=list(keys))
    is_other = cells["is_papers"].eq(False)
    return cells.assign(
        paper=cells["paper"].mask(is_other), paper_std=cells["paper_std"].mask(is_other)
    )


def _lengths(cells: pd.DataFrame, rivals: Sequence[str]) -> "pd.Series[str]":
    """The rounds of a cell in words, where those of its rivals are others."""
    there = cells["rounds"].notna()
    if rivals:
        groups = cells.groupby(list(rivals), dropna=False)["rounds"]
        differ = groups.transform("nunique") > 1
    else:
        differ = pd.Series(cells["rounds"].nunique() > 1, index=cells.index)
    words = cells["rounds"].map(lambda rounds: f"{rounds:.0f} rounds", na_action="ignore")
    return words.where(differ & there, "").mask(cells["stopped"].fillna("") != "", cells["stopped"])


def paper_table(grid: str) -> pd.DataFrame | None:
    """The paper's numbers under our names of settings, None if it has none for this grid."""
    path = PAPER_TABLES / f"{grid}.csv"
    if not path.exists():
        return None
    paper = pd.read_csv(path).rename(columns={"accuracy": "paper", "std": "paper_std"})
    if "paper_std" not in paper:
        paper["paper_std"] = float("nan")
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
    finished = own[own["status"] == "FINISHED"]
    values, tails = finished["value"], finished["tail"]
    return {
        "data.dataset": own["data.dataset"].iloc[0],
        "rounds": own["rounds"].max(),
        "rule": " ".join(str(own[name].iloc[0]) for name in own if str(name).startswith("stop.")),
        "stopped": _stopped(finished),
        "mean": values.mean(skipna=False),
        "std": values.std(skipna=False),
        "tail": tails.mean(skipna=False),
        "tail_std": tails.std(skipna=False),
        "seeds": len(values),
        "state": "finished" if len(values) else MISSING.get(own["status"].iloc[0], "not run"),
        "is_papers": bool(own["is_papers"].all()),
        "more_is_better": own["more_is_better"].iloc[0],
    }


def _stopped(finished: pd.DataFrame) -> str:
    """Where trials ended before their last round, in words."""
    if "done" not in finished or not (finished["done"] < finished["rounds"]).any():
        return ""
    first, last = finished["done"].min(), finished["done"].max()
    return f"stopped at round {first:.0f}" + (f" to {last:.0f}" if last > first else "")


def _ranks(cells: pd.DataFrame, rivals: Sequence[str]) -> "pd.Series[float]":
    """1 for the best of its rivals, 2 for the runner-up; references do not compete."""
    sign = cells["more_is_better"].map({True: -1.0, False: 1.0})
    signed = (cells["mean"] * sign).round(10)
    if "method.name" in cells:
        signed = signed.mask(cells["method.name"].isin(REFERENCES))
    return signed.groupby([cells[name] for name in rivals], dropna=False).rank(method="min")
