"""The paper's statements, each with the test that decides it.

A claim is a list of comparisons, all of which must hold, so no correction for their number is
needed. A comparison has one number for each seed, positive if it speaks for the claim. Claims about
means are decided by the 95 % t-interval of the paired differences: above zero, below zero, or not
enough runs to tell. Claims about every run are refuted by a single one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from fedcome_ray import metrics
from fedcome_ray.methods import PAPER

from . import labels, scores
from .study import Study
from .tables import TextTable, paper_table

Verdict = Literal["reproduced", "not reproduced", "not enough runs"]
FEWEST_SEEDS = 3  # the paper's number of runs
STABLE = (0.5, 0.7, 0.9)  # of α and μ: where the paper calls FedCOME stable
CONFIDENCE = 0.95
SHARES = (0.1, 0.2, 0.3, 0.4)
SERVER_RATES = (1.0, 1.5, 2.0, 3.0)
PLAIN_FEDCOME: dict[str, Any] = {
    "method.name": "fedcome",
    "method.match_norm": False,
    "method.clamp": None,
    "method.weights": "samples",
    "sampler.ema": 0.5,
    "sampler.variant": "clean",
}


class Comparison(NamedTuple):
    """Two things compared on the same seeds."""

    where: str
    differences: "pd.Series[float]"  # by seed; positive speaks for the claim
    runs: list[str]


class Claim(NamedTuple):
    name: str
    text: str
    compare: Callable[[Study], Iterable[Comparison]]
    about_every_run: bool = False


class Part(NamedTuple):
    """A comparison, decided."""

    where: str
    seeds: int
    difference: float
    low: float
    high: float
    effect: float  # Cohen's d of paired differences: mean over standard deviation
    verdict: Verdict
    runs: list[str]


class Finding(NamedTuple):
    claim: Claim
    grid: str
    verdict: Verdict
    reason: str
    parts: list[Part]


def check(claim: Claim, grid: str, study: Study | None) -> Finding:
    """Without a study the grid has not been run."""
    if study is None:
        return Finding(claim, grid, "not enough runs", f"grid {grid} has not been run", [])
    parts = [decide(comparison, claim) for comparison in claim.compare(study)]
    there = [part for part in parts if part.seeds]
    missing = len(parts) - len(there)
    pro = sum(part.difference > 0 or _holds_at_zero(part, claim) for part in there)
    reasons = [
        f"{pro} of {len(there)} comparisons point its way" if there else "nothing to compare"
    ]
    if missing:
        reasons.append(f"{missing} not run")
    if study.profile == "quick":
        reasons.append("quick is not the paper's data")
    verdict = _conjunction(parts, study.profile)
    return Finding(claim, grid, verdict, ", ".join(reasons), parts)


def _conjunction(parts: list[Part], profile: str) -> Verdict:
    verdicts = {part.verdict for part in parts}
    if profile == "quick" or not parts:
        return "not enough runs"
    if "not reproduced" in verdicts:
        return "not reproduced"
    return "reproduced" if verdicts == {"reproduced"} else "not enough runs"


def _holds_at_zero(part: Part, claim: Claim) -> bool:
    return claim.about_every_run and part.difference == 0


def decide(comparison: Comparison, claim: Claim) -> Part:
    values = comparison.differences.to_numpy(np.float64)
    num = len(values)
    mean = float(values.mean()) if num else np.nan
    std = float(values.std(ddof=1)) if num > 1 else np.nan
    enough = num >= FEWEST_SEEDS
    if claim.about_every_run:
        low, high = (float(values.min()), float(values.max())) if num else (np.nan, np.nan)
        verdict = _verdict(holds=enough and low >= 0, fails=low < 0)
    else:
        half = std / num**0.5 * stats.t.ppf((1 + CONFIDENCE) / 2, num - 1) if num > 1 else np.nan
        low, high = float(mean - half), float(mean + half)
        verdict = _verdict(holds=enough and low > 0, fails=enough and high < 0)
    effect = mean / std if std > 0 else np.nan
    return Part(comparison.where, num, mean, low, high, effect, verdict, comparison.runs)


def _verdict(*, holds: bool, fails: bool) -> Verdict:
    return "reproduced" if holds else "not reproduced" if fails else "not enough runs"


def paired(
    scored: pd.DataFrame, better: Mapping[str, Any], worse: Mapping[str, Any], where: str
) -> Comparison:
    """The difference of two groups of trials, given by settings, on the seeds that both have.

    A pair has the same data, model and rounds; of several with one seed the longest, then the
    newest counts. A diverged trial keeps its NaN, which decides nothing and stays visible.
    """
    finished = scored[scored["status"] == "FINISHED"]
    ours, theirs = (_with(finished, own) for own in (better, worse))
    alike = [s for s in scores.settings(scored) if s.startswith(("data.", "model."))]
    pairs = ours.merge(theirs, on=["seed", "rounds", *alike], suffixes=("", "/other"))
    pairs = pairs.sort_values(["rounds", "launch"]).drop_duplicates("seed", keep="last")
    pairs = pairs.set_index("seed").sort_index()
    differences = pairs["value"] - pairs["value/other"]
    return Comparison(where, differences, [*pairs["run_id"], *pairs["run_id/other"]])


def best_method(
    method: str, setting: str, *values: Any, sampler: str | None = None
) -> Callable[[Study], Iterator[Comparison]]:
    """`method` is ahead of the paper's other methods where `setting` has one of `values`."""

    def compare(study: Study) -> Iterator[Comparison]:
        scored = _accuracy(study)
        for value, other in product(values, PAPER):
            here = {setting: value} | ({"sampler.name": sampler} if sampler else {})
            where = f"{labels.value(setting, value)}: {_name(method)} − {_name(other)}"
            if other != method:
                ours, theirs = {"method.name": method, **here}, {"method.name": other, **here}
                yield paired(scored, ours, theirs, where)

    return compare


def sampler_gain(study: Study) -> Iterator[Comparison]:
    for method, share in product(PAPER, SHARES):
        yield _gain(study, method, share)


def _gain(study: Study, method: str, share: float) -> Comparison:
    here = {"method.name": method, "participation": share}
    similar, random = ({**here, "sampler.name": name} for name in ("similarity", "random"))
    where = f"{_name(method)}, {labels.value('participation', share)}"
    return paired(_accuracy(study), similar, random, where)


def gain_shrinks(study: Study) -> Iterator[Comparison]:
    gains = [_gain(study, "fedcome", share) for share in SHARES]
    ten, twenty, thirty, forty = (gain.differences for gain in gains)
    runs = [run for gain in gains for run in gain.runs]
    differences = (ten + twenty - thirty - forty).dropna() / 2
    yield Comparison("FedCOME's gain at 10 and 20 % − at 30 and 40 %", differences, runs)


def sooner(study: Study) -> Iterator[Comparison]:
    """Rounds that FedCOME is ahead of FedAvg on the way to the accuracy that FedAvg ends with."""
    rounds = study.finished
    for dataset in _datasets(study, *labels.DATASETS):
        here = rounds[rounds["data.dataset"] == dataset]
        saved, runs = {}, []
        for seed, own in here.groupby("seed"):
            fedavg, fedcome = (own[own["method.name"] == name] for name in ("fedavg", "fedcome"))
            if len(fedavg) and len(fedcome):
                target = scores.evaluated(fedavg).sort_values("round")[metrics.ACCURACY].iloc[-1]
                saved[seed] = _rounds_to(fedavg, target) - _rounds_to(fedcome, target)
                runs += [fedavg["run_id"].iloc[0], fedcome["run_id"].iloc[0]]
        where = f"{labels.value('data.dataset', dataset)}: rounds saved"
        yield Comparison(where, pd.Series(saved, dtype=float), runs)


def _rounds_to(trial: pd.DataFrame, target: float) -> float:
    """A trial that never arrives counts as arriving one round after its end."""
    if np.isnan(target):
        return float("nan")
    return float(scores.rounds_to(trial, target).fillna(trial["rounds"].iloc[0] + 1).iloc[0])


def stable(study: Study) -> Iterator[Comparison]:
    """How far the range of the cells that the paper calls stable stays below the paper's."""
    paper = paper_table(study.grid)
    assert paper is not None
    paper = _among_stable(paper)
    papers_range = paper["paper"].max() - paper["paper"].min()
    scored = _among_stable(_accuracy(study)).dropna(subset="value")
    by_seed = scored.groupby("seed")["value"]
    is_complete = by_seed.size() == len(paper)
    left = (papers_range - (by_seed.max() - by_seed.min()))[is_complete]
    where = f"{papers_range:.2f} points − range of α and μ in {STABLE}"
    yield Comparison(where, left.round(6), list(scored["run_id"]))  # an equal range is not above


def _among_stable(table: pd.DataFrame) -> pd.DataFrame:
    is_meant = table["sampler.ema"].isin(STABLE) & table["sampler.greedy_fraction"].isin(STABLE)
    return table[is_meant]


def falls(*, at_every_step: bool) -> Callable[[Study], Iterator[Comparison]]:
    """Minus the share of clients' losses that go up, with full participation; zero if none does."""

    def compare(study: Study) -> Iterator[Comparison]:
        rises = _with(
            _rises(study, at_every_step=at_every_step),
            {"method.name": "fedcome", "participation": 1.0},
        )
        what = "steps" if at_every_step else "clients"
        values = -rises.set_index("seed")["value"]
        yield Comparison(f"− share of {what} that go up, %", values, list(rises["run_id"]))

    return compare


def smoother_with_sampler(study: Study) -> Iterator[Comparison]:
    here = {"method.name": "fedcome", "participation": 0.2}
    random, similar = ({**here, "sampler.name": name} for name in ("random", "similarity"))
    where = "share of steps that go up, %: random − similarity"
    yield paired(_rises(study, at_every_step=True), random, similar, where)


def _rises(study: Study, *, at_every_step: bool) -> pd.DataFrame:
    """Trials with the share of their clients' losses that went up, in %."""
    share = scores.share_of_steps_up if at_every_step else scores.share_of_clients_up
    metric = scores.loss_metric(study.clients)
    values = {
        run_id: 100 * share(scores.client_losses(own, metric))
        for run_id, own in study.clients.groupby("run_id")
    }
    trials = scores.trials(study.finished)
    return trials.assign(value=trials["run_id"].map(values)).dropna(subset="value")


def sharper(study: Study) -> Iterator[Comparison]:
    trials = scores.trials(study.frame)
    trials["value"] = trials["run_id"].map(scores.fairness(study.clients)["std"])
    for dataset in _datasets(study, "femnist", "cifar10"):
        here = trials[trials["data.dataset"] == dataset]
        for split in here["data.test_split"].unique() if len(here) else [None]:
            words = [labels.value("data.dataset", dataset), labels.value("data.test_split", split)]
            where = f"{', '.join(filter(None, words))}: std of FedFV − FedCOME"
            fedfv, fedcome = (
                {"method.name": name, "data.test_split": split} for name in ("fedfv", "fedcome")
            )
            yield paired(here, fedfv, fedcome, where)


def no_conflict_left(study: Study) -> Iterator[Comparison]:
    own = _with(study.finished, {"method.name": "fedcome"})
    if metrics.CONFLICTS_AFTER in own:
        own = own.dropna(subset=metrics.CONFLICTS_AFTER)
        most = own.groupby("seed")[metrics.CONFLICTS_AFTER].max()
        yield Comparison("− most conflicts left in a round", -most, list(own["run_id"].unique()))


def beats_longer_steps(study: Study) -> Iterator[Comparison]:
    for rate in SERVER_RATES:
        rival = {"method.name": "fedavg", "method.server_lr": rate}
        where = f"FedCOME − FedAvg with server rate {rate:g}"
        yield paired(_accuracy(study), PLAIN_FEDCOME, rival, where)


def beats_at_equal_length(study: Study) -> Iterator[Comparison]:
    cut = PLAIN_FEDCOME | {"method.match_norm": True}
    rival = {"method.name": "fedavg", "method.server_lr": 1.0}
    yield paired(_accuracy(study), cut, rival, "FedCOME cut to FedAvg's length − FedAvg")


def _with(trials: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """The trials with these settings; None is a setting that a trial has not got."""
    for setting, value in wanted.items():
        own = trials.get(setting, pd.Series(index=trials.index, dtype=object))
        trials = trials[own.isna() if pd.isna(value) else own == value]
    return trials


def _datasets(study: Study, *expected: str) -> list[str]:
    """The datasets that a claim is about, and what else was run, such as the quick profile's."""
    return list(dict.fromkeys([*expected, *study.frame["data.dataset"]]))


def _accuracy(study: Study) -> pd.DataFrame:
    return scores.score(study.frame, scores.ACCURACY["last"])


def _name(method: str) -> str:
    return labels.value("method.name", method)


def as_table(findings: Iterable[Finding]) -> TextTable:
    rows = [
        {"claim": f.claim.text, "verdict": f.verdict, "why": f.reason, "grid": f.grid}
        for f in findings
    ]
    return TextTable("claims", "Claims of the paper", "", pd.DataFrame(rows))


def comparisons(findings: Iterable[Finding]) -> pd.DataFrame:
    """Every comparison of every claim: a row each, for programs."""
    return pd.DataFrame(
        [
            {"claim": finding.claim.name, **part._asdict(), "runs": " ".join(part.runs)}
            for finding in findings
            for part in finding.parts
        ]
    )
