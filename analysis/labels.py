"""Names for people: of methods, datasets, settings and their values."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pandas as pd

from fedcome_ray import datasets, methods
from fedcome_ray.registry import Registry

from .scores import FAIRNESS

DATASETS = ("mnist", "femnist", "cifar10", "cifar100")
"""Those of the paper, in its order."""
NAMES = {
    "method.name": "method",
    "sampler.name": "sampler",
    "sampler.ema": "memory α",
    "sampler.greedy_fraction": "share μ",
    "data.dataset": "dataset",
    "data.test_split": "test split",
}


def _label(registry: Registry[Any], name: str) -> str:
    """As the registry calls it; a plugin's method and a user's dataset keep their names."""
    entry = registry.get(name)
    return entry.label if entry and entry.label else name


FORMATS: dict[str, Callable[[Any], str]] = {
    "method.name": partial(_label, methods.REGISTRY),
    "data.dataset": partial(_label, datasets.REGISTRY),
    "data.partition.classes": lambda value: f"{value:g} classes",
    "data.num_clients": lambda value: f"{value:,.0f} clients",
    "data.validation": lambda value: f"{100 * value:g} % held out",
    "data.test_split": lambda value: value.replace("_", " "),
    "participation": lambda value: f"{100 * value:g} %",
    "sampler.ema": lambda value: f"α = {value:g}",
    "sampler.greedy_fraction": lambda value: f"μ = {value:g}",
}


ORDERS: dict[str, tuple[str, ...]] = {
    "method.name": methods.PAPER,
    "data.dataset": DATASETS,
    "measure": tuple(FAIRNESS),
}


def name(setting: str) -> str:
    return NAMES.get(setting, setting)


def value(setting: str, raw: Any, digits: int = 3) -> str:
    """A setting's value as text; a setting that the trial does not have is empty."""
    if pd.isna(raw):
        return "all" if setting == "participation" else ""
    if setting in FORMATS:
        return FORMATS[setting](raw)
    return f"{raw:.{digits}g}" if isinstance(raw, float) else str(raw)


def join(settings: Iterable[str], row: "pd.Series[Any]") -> str:
    return ", ".join(filter(None, (value(setting, row[setting]) for setting in settings)))


def in_order(table: pd.DataFrame, settings: Iterable[str]) -> pd.DataFrame:
    """The rows as the paper would have them."""
    keys = list(settings)
    rows = [row for _, row in table.iterrows()]
    rows.sort(key=lambda row: [order(key, row[key]) for key in keys])
    return table.loc[[row.name for row in rows]]


def order(setting: str, raw: Any) -> tuple[int, bool, Any]:
    """Sorts methods and datasets as the paper does, then what it does not have, then references."""
    ranks = ORDERS.get(setting, ())
    if raw in ranks:
        return ranks.index(raw), False, ""
    if setting == "method.name" and raw in methods.REFERENCES:
        return len(ranks) + 1, False, raw
    if pd.isna(raw):
        return len(ranks), True, ""
    return len(ranks), False, raw
