"""What was run, whatever its profile is called.

A profile is a list of trials. A trial with other settings, after `--set`, an overlay or from a
start of one's own, is an experiment of its own. And the paper's experiment is what has the
settings of the profile `paper`, under whatever name it was run, on a population of the paper's
size.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from fedcome_ray.experiments.grid import expand, grid_names, load
from fedcome_ray.experiments.settings import flatten, is_choice

from .results import parse

FREE = ("seed", "eval_every", "eval_train_every", "eval_personal_epochs", "data.sha256")
"""Settings that may differ: more seeds are more evidence, and the data are known by their size."""
METHOD = ("method.", "plugin")
"""How the settings begin that belong to the method."""
PAPER_DATASETS = Path(__file__).parent / "paper_tables" / "datasets.csv"
SIZES = ("clients", "train", "test")

Settings = frozenset[tuple[str, Any]]
"""By dotted name, without those that are free or unset."""


def changes(trials: pd.DataFrame, names: list[str]) -> "pd.Series[str]":
    """What each trial has otherwise than its grid's profile; empty if it is one of its trials.

    `names` are the columns that are settings. Of a grid that is not ours nothing is known, so
    nothing is changed.
    """
    identities = zip(trials["grid"], trials["profile"], trials["method.name"], strict=True)
    found = [
        describe_change(_without(own, searched(grid, method)), _profile(grid, profile, method))
        for own, (grid, profile, method) in zip(settings_of(trials, names), identities, strict=True)
    ]
    return pd.Series(found, index=trials.index, dtype=str)


def papers(trials: pd.DataFrame, names: list[str], population: pd.DataFrame) -> frozenset[str]:
    """The run ids of the trials that are the paper's but for the seed.

    `population` has the clients of at least one trial with each setting of the data.
    """
    data = pd.Series(settings_of(trials, [n for n in names if n.startswith("data.")], free=()))
    data.index = pd.Index(trials["run_id"])
    sizes = {
        data[run_id]: (len(own), own["num_train"].sum(), own["num_test"].sum())
        for run_id, own in population.groupby("run_id")
    }
    expected = pd.read_csv(PAPER_DATASETS).set_index("data.dataset")[list(SIZES)]
    return frozenset(
        run_id
        for own, grid, dataset, run_id in zip(
            settings_of(trials, names),
            trials["grid"],
            trials["data.dataset"],
            trials["run_id"],
            strict=True,
        )
        if own in trials_of(grid, "paper")
        and dataset in expected.index
        and sizes.get(data[run_id]) == tuple(expected.loc[dataset])
    )


@cache
def trials_of(grid: str, profile: str) -> frozenset[Settings]:
    """The trials of a profile of one of our grids, seeds aside; empty if there is none such."""
    if grid not in grid_names():
        return frozenset()
    record = load(grid)
    if profile not in record.profiles:
        return frozenset()
    stored = (
        {name: parse(str(value)) for name, value in flatten(trial.model_dump(mode="json")).items()}
        for trial in expand(record, profile)
    )
    return frozenset(_settings(trial.items()) for trial in stored)


@cache
def _profile(grid: str, profile: str, method: str) -> frozenset[Settings]:
    """The profile's trials without what a search may draw for this method."""
    drawn = searched(grid, method)
    return frozenset(_without(trial, drawn) for trial in trials_of(grid, profile))


@cache
def searched(grid: str, method: str) -> tuple[str, ...]:
    """The settings of a method that a search draws from ranges of the grid."""
    return tuple(load(grid).space.get(method, ())) if grid in grid_names() else ()


def datasets_of_paper(grid: str) -> set[str]:
    """Those that the paper's trials of this grid have."""
    return {dict(trial)["data.dataset"] for trial in trials_of(grid, "paper")}


def describe_change(trial: Settings, profile: frozenset[Settings]) -> str:
    """What a trial has otherwise than the nearest of the profile's trials."""
    if not profile or trial in profile:
        return ""
    methods = {dict(own)["method.name"] for own in profile}
    if dict(trial)["method.name"] not in methods and len(methods) > 1:
        # Where methods are compared, one more has a row of its own beside them.
        trial = _without(trial, METHOD)
        profile = frozenset(_without(other, METHOD) for other in profile)
        if trial in profile:
            return ""
    nearest = min(profile, key=lambda own: (len(own ^ trial), sorted(map(repr, own))))
    return ", ".join(_differences(dict(trial), dict(nearest)))


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    names = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    owners = tuple(f"{name.rpartition('.')[0]}." for name in names if is_choice(name))
    for name in sorted(names, key=lambda name: (not is_choice(name), name)):
        # What belongs to another choice has gone with it, or come with it.
        if name in ours and (name in theirs or not name.startswith(owners) or is_choice(name)):
            yield f"{name}={_short(ours[name])}"
        elif name not in ours and not name.startswith(owners):
            yield f"{name} unset"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return f"{text[:6]}…" if len(text) == 64 else text  # a SHA-256


def settings_of(
    trials: pd.DataFrame, names: list[str], free: tuple[str, ...] = FREE
) -> list[Settings]:
    rows = trials[names].to_dict("records")
    return [_settings(((str(n), v) for n, v in row.items()), free) for row in rows]


def cases_of(trials: pd.DataFrame, names: list[str]) -> list[Settings]:
    """What trials have in common that differ by the method, and in what may differ."""
    return [_without(own, METHOD) for own in settings_of(trials, names)]


def _settings(items: Any, free: tuple[str, ...] = FREE) -> Settings:
    return frozenset((name, value) for name, value in items if name not in free and pd.notna(value))


def _without(trial: Settings, starts: tuple[str, ...]) -> Settings:
    return frozenset((n, v) for n, v in trial if not n.startswith(starts)) if starts else trial
