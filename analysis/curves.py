"""Metrics over rounds, averaged over seeds: what the figures and the report's charts draw."""

import pandas as pd

from analysis import labels, scores
from analysis.study import Study


def curves(study: Study, metric: str) -> pd.DataFrame:
    """One row for each panel, label and round: mean, std over seeds, number of seeds, method."""
    rounds = scores.evaluated(study.finished) if _is_evaluation(metric) else study.finished
    columns = ["panel", "label", "method", "round", "mean", "std", "seeds"]
    if metric not in rounds or rounds[metric].isna().all():
        return pd.DataFrame(columns=columns)
    layout = study.layout
    keys = list(dict.fromkeys(["method.name", *layout.rivals, *layout.curve]))
    grouped = rounds.groupby([*keys, "round"], dropna=False)[metric]
    table = pd.DataFrame(
        {
            # A diverged seed makes the mean NaN, a gap in the curve: it must not vanish from it.
            "mean": grouped.agg(lambda values: values.mean(skipna=False)),
            "std": grouped.std().fillna(0.0),
            "seeds": grouped.size(),
        }
    ).reset_index()
    named = _named(table[keys].drop_duplicates(), study)
    table = named.merge(table, on=keys).sort_values(["position", "round"])
    return table.rename(columns={"method.name": "method"})[columns]


def _named(groups: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The groups in the paper's order, each with the panel and the label it is drawn under."""
    rows = [row for _, row in groups.iterrows()]
    rows.sort(key=lambda row: [labels.order(key, row[key]) for key in groups])
    return pd.DataFrame(rows).assign(
        panel=[labels.join(study.layout.rivals, row) for row in rows],
        label=[labels.join(study.layout.curve, row) or "default" for row in rows],
        position=range(len(rows)),
    )


def _is_evaluation(metric: str) -> bool:
    return metric.startswith(("accuracy/", "loss/"))
