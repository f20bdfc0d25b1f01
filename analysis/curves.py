"""Metrics over rounds, averaged over seeds: what the figures and the report's charts draw."""

import pandas as pd

from . import labels, scores
from .study import Study


def curves(study: Study, metric: str) -> pd.DataFrame:
    """One row for each panel, label and round: mean, std over seeds, number of seeds, method."""
    rounds = study.finished
    rounds = scores.evaluated(rounds) if _is_evaluation(metric) else rounds[rounds["round"] > 0]
    columns = ["panel", "label", "method", "round", "mean", "std", "seeds"]
    if metric not in rounds or rounds[metric].isna().all():
        return pd.DataFrame(columns=columns)
    layout = study.layout
    keys = list(dict.fromkeys(["method.name", *layout.rivals, *layout.curve]))
    unit = 100 if metric.startswith("accuracy/") else 1  # accuracies are shown in %
    grouped = (unit * rounds[metric]).groupby(
        [rounds[key] for key in (*keys, "round")], dropna=False
    )
    table = pd.DataFrame(
        {
            # A diverged seed makes the mean NaN, a gap in the curve: it must not vanish from it.
            "mean": grouped.mean().where(grouped.count() == grouped.size()),
            "std": grouped.std().fillna(0.0),
            "seeds": grouped.size(),
        }
    ).reset_index()
    # Where some seeds have stopped early, the mean of the others is not a continuation.
    most = table.groupby(keys, dropna=False)["seeds"].transform("max")
    table = table[table["seeds"] == most]
    named = _named(labels.in_order(table[keys].drop_duplicates(), keys), study)
    table = named.merge(table, on=keys).sort_values(["position", "round"])
    return table.rename(columns={"method.name": "method"})[columns]


def _named(groups: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The groups, each with the panel and the label it is drawn under."""
    rows = [row for _, row in groups.iterrows()]
    return groups.assign(
        panel=[labels.join(study.layout.rivals, row) for row in rows],
        label=[labels.join(study.layout.curve, row) or "default" for row in rows],
        position=range(len(rows)),
    )


def _is_evaluation(metric: str) -> bool:
    return metric.startswith(("accuracy/", "loss/"))
