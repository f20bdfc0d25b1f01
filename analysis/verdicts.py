"""What is claimed, what the trials say about it, and the word for that.

A claim is checked on the trials of one study. Its comparisons are decided by `decisions.py`; what
the decision is called depends on what was run. *Reproduced* is only said of the paper's own
trials.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from . import decisions, labels, scope, scores
from .decisions import Decision, Evidence
from .study import Study

Kind = Literal["on average", "everywhere", "in every run"]
Verdict = Literal[
    "reproduced",
    "holds here",
    "leans for",
    "open",
    "leans against",
    "fails here",
    "not reproduced",
    "not judged",
]


class Comparison(NamedTuple):
    """Two things compared on the same seeds."""

    where: str
    differences: "pd.Series[float]"  # by seed; positive speaks for the claim
    runs: list[str]


class Claim(NamedTuple):
    """A statement, and the comparisons that decide it."""

    name: str
    text: str
    source: str | None
    """Where the paper makes it; None is a question of ours, which cannot be reproduced."""
    compare: Callable[[Study], Iterable[Comparison]]
    """Given the part of a study that the claim is about."""
    kind: Kind = "everywhere"
    about: Mapping[str, Sequence[Any]] = {}
    """Values of settings that the paper speaks of."""
    unit: str = "points"


class Part(NamedTuple):
    """A comparison, decided."""

    where: str
    seeds: int
    difference: float  # positive speaks for the claim
    low: float  # of the 95 % interval; of claims about every run, the range
    high: float
    effect: float  # Cohen's d of paired differences
    evidence: Evidence  # of this comparison alone
    decision: Decision
    runs: list[str]


class Finding(NamedTuple):
    """A claim, judged."""

    claim: Claim
    grid: str
    verdict: Verdict
    reason: str
    where: str  # data, rounds, seeds, profile; empty if there is nothing to tell of
    parts: list[Part]
    pooled: Part | None  # the mean of all comparisons, of claims about averages
    seeds_to_decide: float  # infinite if more than 1000, NaN if decided or not to be told


def check(claim: Claim, grid: str, study: Study | None) -> Finding:
    """Without a study the grid has not been run."""
    if study is None:
        return _unjudged(claim, grid, f"grid {grid} has not been run")
    meant, is_complete = part_about(study, claim.about)
    if meant.frame.empty:
        return _unjudged(claim, grid, f"it is about {_values(claim.about)}, not run here")
    comparisons = list(claim.compare(meant))
    parts = _parts(comparisons, claim.kind)
    runs = {run for comparison in comparisons for run in comparison.runs}
    if not runs:
        return _unjudged(claim, grid, "no finished trials to compare")
    where = _where(meant, parts)
    pooled = _pool(comparisons) if claim.kind == "on average" else None
    reasons = [*_tally(parts, claim.kind), *([_say(pooled, claim.unit)] if pooled else [])]
    if barred := _bar(study):
        reason = "; ".join([barred, *reasons])
        return Finding(claim, grid, "not judged", reason, where, parts, pooled, math.nan)
    decision = _decide(parts, pooled, claim.kind)
    decides_all = is_complete or (decision == "fails" and claim.kind != "on average")
    is_papers = claim.source is not None and decides_all and runs <= study.papers
    needed = _seeds_to_decide(parts, pooled, claim.kind, decision)
    reasons += [words for words in [say_seeds(needed)] if words]
    verdict = name(decision, is_papers=is_papers)
    return Finding(claim, grid, verdict, "; ".join(reasons), where, parts, pooled, needed)


def name(decision: Decision, *, is_papers: bool) -> Verdict:
    """What a decision is called: of the paper's trials, or of others."""
    if decision == "holds":
        return "reproduced" if is_papers else "holds here"
    if decision == "fails":
        return "not reproduced" if is_papers else "fails here"
    return decision


def say_seeds(needed: float) -> str:
    if math.isnan(needed):
        return ""
    if math.isinf(needed):
        return f"more than {decisions.MOST_SEEDS} seeds would be needed to decide"
    return f"about {needed:.0f} seeds would decide"


def _unjudged(claim: Claim, grid: str, reason: str) -> Finding:
    return Finding(claim, grid, "not judged", reason, "", [], None, math.nan)


def part_about(study: Study, about: Mapping[str, Sequence[Any]]) -> tuple[Study, bool]:
    """The trials that a claim is about, and whether they are all that it is about.

    Data that the paper does not have in this experiment may stand in for those that it has; but
    what it says of one of its datasets is not tested on another of them.
    """
    frame, is_complete = study.frame, True
    for setting, values in about.items():
        wanted = set(values) & set(frame[setting])
        if setting == "data.dataset" and not wanted:
            wanted = set(frame[setting]) - scope.datasets_of_paper(study.grid)
        is_complete &= wanted >= set(values)
        frame = frame[frame[setting].isin(wanted)]
    return study._replace(frame=frame), is_complete


def _bar(study: Study) -> str:
    """Why no claim is judged by this study, if so."""
    if study.changes:
        return f"run with {study.changes}, which is no longer the grid's experiment"
    if study.profile == "quick":
        return "quick is small embedded data, to see that everything works"
    return ""


def _parts(comparisons: list[Comparison], kind: Kind) -> list[Part]:
    if kind == "in every run":
        return [_by_range(comparison) for comparison in comparisons]
    tests = [decisions.compare(_values_of(comparison)) for comparison in comparisons]
    refuted = decisions.refuted(np.array([float(test.fails) for test in tests]))
    return [
        _part(comparison, test, refuted=fails)
        for comparison, test, fails in zip(comparisons, tests, refuted, strict=True)
    ]


def _part(comparison: Comparison, evidence: Evidence, refuted: Any) -> Part:
    """`refuted` is the p-value against the claim, corrected for the number of comparisons."""
    values = _values_of(comparison)
    return Part(
        comparison.where,
        len(values),
        float(values.mean()) if len(values) else math.nan,
        *decisions.interval(values),
        decisions.effect_of(values),
        evidence,
        _word(Evidence(evidence.holds, refuted)),
        comparison.runs,
    )


def _by_range(comparison: Comparison) -> Part:
    """One number below zero is a counterexample; their absence is weighed by no test."""
    values = _values_of(comparison)
    num = len(values)
    low, high = (float(values.min()), float(values.max())) if num else (math.nan, math.nan)
    without = "holds" if num >= decisions.FEWEST_SEEDS else "leans for" if num else "open"
    decision: Any = "fails" if low < 0 else "open" if math.isnan(low) else without
    mean = float(values.mean()) if num else math.nan
    nothing = Evidence(np.asarray(math.nan), np.asarray(math.nan))
    return Part(
        comparison.where, num, mean, low, high, math.nan, nothing, decision, comparison.runs
    )


def _pool(comparisons: list[Comparison]) -> Part:
    """The mean over comparisons, of the seeds that all of them have."""
    table = pd.concat([comparison.differences for comparison in comparisons], axis=1, join="inner")
    runs = [run for comparison in comparisons for run in comparison.runs]
    pooled = Comparison("mean of all", table.mean(axis=1, skipna=False), runs)
    evidence = decisions.compare(_values_of(pooled))
    return _part(pooled, evidence, refuted=evidence.fails)


def _decide(parts: list[Part], pooled: Part | None, kind: Kind) -> Decision:
    if kind == "in every run":
        found = [part.decision for part in parts]
        worst: list[Decision] = ["fails", "open", "leans for", "holds"]
        return next(decision for decision in worst if decision in found)
    if pooled is not None:
        return pooled.decision
    each = Evidence(*(np.array(side) for side in zip(*(p.evidence for p in parts), strict=True)))
    return _word(decisions.everywhere(each))


def _word(evidence: Evidence) -> Decision:
    return cast("Decision", decisions.decide(evidence).item())


def _seeds_to_decide(
    parts: list[Part], pooled: Part | None, kind: Kind, decision: Decision
) -> float:
    if decision in {"holds", "fails"} or kind == "in every run":
        return math.nan
    if pooled is not None:
        return decisions.seeds_to_decide(pooled.effect)
    return decisions.seeds_for_all([part.effect for part in parts])


def _tally(parts: list[Part], kind: Kind) -> list[str]:
    there = [part for part in parts if part.seeds]
    pro = sum(part.difference > 0 or (kind == "in every run" and part.low == 0) for part in there)
    words = [f"{pro} of {len(there)} comparisons point its way"]
    missing = len(parts) - len(there)
    return [*words, f"{missing} not run"] if missing else words


def _say(part: Part, unit: str) -> str:
    if not math.isfinite(part.low):
        return f"on average {say_number(part.difference)} {unit}"
    interval = f"{say_number(part.low)} to {say_number(part.high)}"
    return f"on average {say_number(part.difference)} {unit} (95 % interval {interval})"


def say_number(value: float) -> str:
    return "–" if not math.isfinite(value) else f"{value:+.2f}".replace("-", "−")


def _where(study: Study, parts: list[Part]) -> str:
    trials = scores.trials(study.frame)
    datasets = labels.in_order(trials.drop_duplicates("data.dataset"), ["data.dataset"])
    names = [labels.value("data.dataset", own) for own in datasets["data.dataset"]]
    rounds = "/".join(str(n) for n in sorted(trials["rounds"].unique()))
    seeds = sorted({part.seeds for part in parts if part.seeds})
    count = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    words = f"{count} seed{'s' if seeds[-1] > 1 else ''}"
    return f"{', '.join(names)}, {rounds} rounds, {words}, profile {study.profile}"


def _values(about: Mapping[str, Sequence[Any]]) -> str:
    parts = [
        " and ".join(labels.value(setting, value) for value in values)
        for setting, values in about.items()
    ]
    return ", ".join(parts)


def _values_of(comparison: Comparison) -> decisions.Array:
    return np.asarray(comparison.differences, dtype=np.float64)
