"""What the profiles that were run can say about the paper, and what they cannot."""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from . import labels, scores
from .contents import contents_of
from .study import Study

MEANINGS = {
    "quick": "Small data that come with the package, in a miniature of the paper's regime. It "
    "shows that everything works and what there will be to see; it does not judge the paper.",
    "laptop": "Real MNIST stands in for the paper's CIFAR-10, CIFAR-100 and FEMNIST, a small fully "
    "connected network for its convolutional ones, and there are fewer rounds. So it can tell "
    "whether the paper's claims hold there. It cannot tell whether the paper's numbers are "
    "reproduced.",
    "mini": "The paper's data and models, but fewer rounds, seeds or datasets. It can tell whether "
    "claims hold at that length. It cannot tell whether the paper's numbers are reproduced.",
    "paper": "The paper's data, models and rounds. It can tell whether the paper's claims and "
    "numbers are reproduced.",
}
CHANGED = "Not what the profile stands for, so it judges nothing."
UNKNOWN = "An experiment of its own, with nothing in the paper to compare it with."


class Scope(NamedTuple):
    """What was run under one name, and what that can tell."""

    what: str
    meaning: str


def scopes(studies: Iterable[Study]) -> list[Scope]:
    """One for each profile and for each change of its settings, of grids that the paper is in."""
    found = list(studies)
    meant = [study for study in found if contents_of(study.grid).claims] or found
    groups: dict[tuple[str, str], list[Study]] = {}
    for study in meant:
        groups.setdefault((study.profile, study.changes), []).append(study)
    return [_scope(*key, own, is_all=len(groups) == 1) for key, own in groups.items()]


def _scope(profile: str, changes: str, studies: list[Study], *, is_all: bool) -> Scope:
    name = f"Profile {profile}" + (f" with {changes}" if changes else "")
    grids = "" if is_all else f" ({', '.join(study.grid for study in studies)})"
    is_known = any(contents_of(study.grid).claims for study in studies)
    known = MEANINGS.get(profile, UNKNOWN) if is_known else UNKNOWN
    meaning = CHANGED if changes else f"{known} {_exceptions(profile, studies)}".strip()
    return Scope(f"{name}{grids}: {_facts(studies)}", meaning)


def _exceptions(profile: str, studies: list[Study]) -> str:
    """What is the paper's own experiment although the profile is not the paper's."""
    own = [(study, study.frame["run_id"].isin(study.papers)) for study in studies]
    found = [
        f"{study.layout.title} on {_datasets(study.frame[is_papers])}"
        for study, is_papers in own
        if profile != "paper" and is_papers.any()
    ]
    return f"The paper's own experiments are among them: {'; '.join(found)}." if found else ""


def _datasets(trials: pd.DataFrame) -> str:
    found = sorted(set(trials["data.dataset"]), key=lambda d: labels.order("data.dataset", d))
    return ", ".join(labels.value("data.dataset", name) for name in found)


def _facts(studies: list[Study]) -> str:
    """Datasets, models, rounds and seeds of all trials."""
    trials = pd.concat([scores.trials(study.frame) for study in studies])
    parts = [_datasets(trials)]
    if "model.name" in trials:
        parts.append(f"model {', '.join(sorted(trials['model.name'].dropna().unique()))}")
    parts.append(f"{_range(trials['rounds'].astype(int).unique())} rounds")
    seeds = trials.groupby("grid")["seed"].nunique().to_numpy()
    return ", ".join([*parts, f"{_range(seeds)} seed{'s' if max(seeds) > 1 else ''}"])


def _range(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
