"""The curves of a study as data for the script of the report, which draws them."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from fedcome_ray import metrics

from . import style
from .curves import curves
from .study import Study

MOST_POINTS = 150  # of a curve: more cannot be seen
CHARTED = {
    metrics.ACCURACY: "test accuracy",
    metrics.WORST_DECILE: "accuracy of the worst 10 % of clients",
    metrics.CLIENT_STD: "standard deviation of client accuracy",
    metrics.LOSS: "test loss",
    metrics.OPPOSED: "clients opposed to the step",
    metrics.CONFLICTS_BEFORE: "conflicting pairs before the consensus",
    metrics.STEP_RATIO: "length of the step, FedAvg's = 1",
}


def charts(studies: Iterable[Study]) -> dict[str, Any]:
    """`rounds` are the lists of rounds that curves refer to by place: most have the same."""
    rounds: dict[tuple[int, ...], int] = {}
    grids = {study.grid: _metrics(study, rounds) for study in studies}
    return {"rounds": list(rounds), "grids": {grid: own for grid, own in grids.items() if own}}


def _metrics(study: Study, rounds: dict[tuple[int, ...], int]) -> dict[str, Any]:
    """Metric -> panel -> curves."""
    tables = {metric: curves(study, metric) for metric in CHARTED}
    return {
        CHARTED[metric]: {
            str(panel) or "all": _curves(own, rounds)
            for panel, own in table.groupby("panel", sort=False)
        }
        for metric, table in tables.items()
        if not table.empty
    }


def _curves(panel: pd.DataFrame, rounds: dict[tuple[int, ...], int]) -> list[dict[str, Any]]:
    looks = style.looks(dict(zip(panel["label"], panel["method"], strict=True)))
    return [
        {
            "label": label,
            "colour": looks[str(label)].colour,
            "dash": " ".join(str(2 * length) for length in looks[str(label)].dash),
            "width": looks[str(label)].width,
            **_points(own, rounds),
        }
        for label, own in panel.groupby("label", sort=False)
    ]


def _points(own: pd.DataFrame, rounds: dict[tuple[int, ...], int]) -> dict[str, Any]:
    """One seed has no deviation."""
    chosen = np.unique(np.linspace(0, len(own) - 1, MOST_POINTS).round().astype(int))
    seeds, own = int(own["seeds"].max()), own.iloc[chosen]
    numbers = tuple(int(number) for number in own["round"])
    return {
        "seeds": seeds,
        "rounds": rounds.setdefault(numbers, len(rounds)),
        "mean": [_short(value) for value in own["mean"]],
        "std": [_short(value) for value in own["std"]] if seeds > 1 else [],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
