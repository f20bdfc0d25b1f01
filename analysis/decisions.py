"""From differences to decisions, with error rates that are known.

A comparison is a sample of differences, one for each seed, positive where it speaks for a claim.
Two p-values sum up what the seeds say: `holds`, small where they contradict "the claim is false",
and `fails`, small where they contradict "the claim is true". Both come from t-tests of the mean,
one-sided.

    on average        one test of the seeds' means over all comparisons
    everywhere        holds: the worst of all tests (intersection-union, needs no correction)
                      fails: the best of all tests times their number (the first step of Holm)

At a p-value of at most `DECIDED` a claim is decided, at most `LEANING` it leans. So a claim that
is false is said to hold, or one that is true to fail, in at most 5 % of studies, however many
comparisons it has and however they depend on each other; a lean is wrong in at most 25 %.

All functions broadcast over leading axes, so that a simulation can call what a report calls.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

Array = np.ndarray[Any, np.dtype[np.float64]]
Decision = Literal["holds", "leans for", "open", "leans against", "fails"]

DECIDED = 0.05
LEANING = 0.25
FEWEST_SEEDS = 3  # the paper's number of runs; with fewer nothing is decided
POWER = 0.8  # the chance of a decision that `seeds_to_decide` asks for
MOST_SEEDS = 1000


class Evidence(NamedTuple):
    """Two p-values."""

    holds: Array  # against "the claim is false"
    fails: Array  # against "the claim is true"


def compare(differences: Array) -> Evidence:
    """Whether a mean is above zero, by samples along the last axis; few seeds can only lean."""
    floor = 0.0 if differences.shape[-1] >= FEWEST_SEEDS else LEANING
    holds, fails = _p_above_zero(differences), _p_above_zero(-differences)
    return Evidence(np.maximum(holds, floor), np.maximum(fails, floor))


def on_average(differences: Array) -> Evidence:
    """Whether the mean over comparisons is above zero; the last axes are comparisons and seeds."""
    return compare(differences.mean(axis=-2))


def everywhere(parts: Evidence) -> Evidence:
    """Whether all means are above zero, by the evidence of each along the last axis."""
    return Evidence(parts.holds.max(axis=-1), refuted(parts.fails).min(axis=-1))


def refuted(p_values: Array) -> Array:
    """Holm's adjusted p-values along the last axis."""
    num = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    scaled = np.take_along_axis(p_values, order, -1) * np.arange(num, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


def decide(evidence: Evidence) -> np.ndarray[Any, np.dtype[np.str_]]:
    """A `Decision` for each."""
    return np.select(
        [
            evidence.holds <= DECIDED,
            evidence.fails <= DECIDED,
            evidence.holds <= LEANING,
            evidence.fails <= LEANING,
        ],
        ["holds", "fails", "leans for", "leans against"],
        "open",
    )


def seeds_to_decide(effect: float, level: float = DECIDED) -> float:
    """Seeds with which a test at this level decides, with a chance of 80 %.

    `effect` is the mean over the standard deviation, as far as it is known. Infinite if more than
    `MOST_SEEDS`, NaN if the effect is unknown.
    """
    if np.isnan(effect):
        return float("nan")
    few, many = FEWEST_SEEDS - 1, MOST_SEEDS + 1  # too few; enough, as far as is known
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if _power(abs(effect), middle, level) >= POWER else (middle, many)
    return float(many) if many <= MOST_SEEDS else float("inf")


def seeds_for_all(effects: Sequence[float]) -> float:
    """Seeds that would decide a claim about all comparisons, by the effect of each.

    If all speak for it, the weakest decides. Else it takes one that speaks against it.
    """
    known = np.asarray(effects, dtype=np.float64)
    if np.isnan(known).any() or not len(known):
        return float("nan")
    if (known > 0).all():
        return seeds_to_decide(float(known.min()))
    return seeds_to_decide(float(known.min()), DECIDED / len(known))


def effect_of(differences: Array) -> float:
    """Cohen's d of paired differences: mean over standard deviation."""
    if len(differences) < 2 or not differences.std() > 0:
        return float("nan")
    return float(differences.mean() / differences.std(ddof=1))


def interval(differences: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Of the mean, two-sided."""
    num = len(differences)
    if num < 2:
        return float("nan"), float("nan")
    half = differences.std(ddof=1) / num**0.5 * stats.t.ppf((1 + confidence) / 2, num - 1)
    return float(differences.mean() - half), float(differences.mean() + half)


def _p_above_zero(differences: Array) -> Array:
    """Of the one-sided t-test; 1 where a sample has a NaN, which decides nothing."""
    num = differences.shape[-1]
    if num < 2:
        return np.ones(differences.shape[:-1])
    mean, std = differences.mean(axis=-1), differences.std(axis=-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean / (std / num**0.5)
    return np.where(np.isnan(t), 1.0, stats.t.sf(t, num - 1))


def _power(effect: float, num_seeds: int, level: float) -> float:
    freedom = num_seeds - 1
    threshold = stats.t.ppf(1 - level, freedom)
    return float(stats.nct.sf(threshold, freedom, effect * num_seeds**0.5))
