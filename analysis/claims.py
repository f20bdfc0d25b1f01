"""What each claim compares: functions from the part of a study that it is about to comparisons.

A comparison has one number for each seed, positive if it speaks for the claim. Accuracies are
means over the last tenth of the rounds. Comparisons are made in every cell that was run; the
paper's methods must all be there, and a pair that is not has a comparison without seeds, which
keeps a claim from holding.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, permutations
from typing import Any

import pandas as pd

from fedcome_ray import metrics
from fedcome_ray.methods import PAPER

from . import labels, scores
from .study import Study
from .tables import TextTable
from .verdicts import Comparison, Finding

Compare = Callable[[Study], Iterator[Comparison]]
Trials = list[dict[str, Any]]
"""Finished trials with their settings, of those that they have, and a `value` to compare."""

MARGIN = 2.0
"""Points within which accuracies are alike. The paper calls a gap of 0.95 comparable and a range of
1.50 stable; a margin as narrow as that could not be confirmed even if its numbers were the truth.
"""
STABLE = (0.5, 0.7, 0.9)  # of α and μ: where the paper calls FedCOME stable
FEW = 0.2  # the largest share of clients at which the paper sees the sampler's gain
PLAIN_FEDCOME: dict[str, Any] = {
    "method.name": "fedcome",
    "method.match_norm": False,
    "method.clamp": None,
    "method.weights": "samples",
}
DATA = ("data.", "model.")
DATA_AND_SAMPLER = (*DATA, "sampler.")


def paired(
    trials: Trials,
    better: Mapping[str, Any],
    worse: Mapping[str, Any],
    where: str,
    alike: tuple[str, ...] = DATA,
) -> Comparison:
    """The difference of two groups of trials, given by settings, on the seeds that both have.

    A pair has the same rounds and the same settings that begin with `alike`; of several with one
    seed the longest, then the newest counts. A diverged trial keeps its NaN, which decides nothing
    and stays visible.
    """
    theirs = {_alike(own, alike): own for own in _by_age(_with(trials, worse))}
    pairs = {
        own["seed"]: (own, theirs[_alike(own, alike)])
        for own in _by_age(_with(trials, better))
        if _alike(own, alike) in theirs
    }
    seeds = sorted(pairs)
    differences = [pairs[seed][0]["value"] - pairs[seed][1]["value"] for seed in seeds]
    runs = [pairs[seed][side]["run_id"] for side in (0, 1) for seed in seeds]
    return Comparison(where, pd.Series(differences, index=seeds, dtype=float), runs)


def _alike(trial: Mapping[str, Any], prefixes: tuple[str, ...]) -> tuple[Any, ...]:
    same = sorted((name, value) for name, value in trial.items() if name.startswith(prefixes))
    return trial["seed"], trial["rounds"], *same


def _by_age(trials: Trials) -> Trials:
    return sorted(trials, key=lambda own: (own["rounds"], own["launch"]))


def ahead(leaders: Iterable[str], rest: Iterable[str], *cell: str) -> Compare:
    """Each of `leaders` is ahead of each of the `rest` in every cell, told by its settings."""

    def compare(study: Study) -> Iterator[Comparison]:
        trials = _accuracy(study)
        for here in _cells(study, cell):
            for leader in leaders:
                for other in rest:
                    yield _lead(trials, leader, other, here)

    return compare


def best(method: str, *cell: str) -> Compare:
    """`method` is ahead of the paper's other methods in every cell."""
    return ahead([method], [other for other in PAPER if other != method], *cell)


def comparable(method: str, other: str, *cell: str) -> Compare:
    """Two methods are within `MARGIN` of each other: two one-sided tests."""

    def compare(study: Study) -> Iterator[Comparison]:
        trials = _accuracy(study)
        for here in _cells(study, cell):
            for one, two in permutations((method, other)):
                lead = _lead(trials, one, two, here)
                yield lead._replace(
                    where=f"{MARGIN:g} − ({lead.where})", differences=MARGIN - lead.differences
                )

    return compare


def lead_grows(method: str, other: str, setting: str) -> Compare:
    """The lead of one method over another is larger at the smallest value than at the largest."""

    def compare(study: Study) -> Iterator[Comparison]:
        trials = _accuracy(study)
        cells = _cells(study, [setting])
        if len(cells) > 1:
            leads = [_lead(trials, method, other, here) for here in (cells[0], cells[-1])]
            yield _difference(leads[:1], leads[1:], " − ".join(f"({own.where})" for own in leads))

    return compare


def sampler_gain(study: Study) -> Iterator[Comparison]:
    trials = _accuracy(study)
    for here in _cells(study, ["participation"]):
        for method in PAPER:
            yield _gain(trials, method, here["participation"])


def gain_shrinks(study: Study) -> Iterator[Comparison]:
    shares = [here["participation"] for here in _cells(study, ["participation"])]
    trials = _accuracy(study)
    few = [_gain(trials, "fedcome", share) for share in shares if share <= FEW]
    many = [_gain(trials, "fedcome", share) for share in shares if share > FEW]
    if few and many:
        words = (f"with up to {labels.value('participation', FEW)}", "with more clients")
        yield _difference(few, many, f"FedCOME's gain {' − '.join(words)}")


def _gain(trials: Trials, method: str, share: float) -> Comparison:
    here = {"method.name": method, "participation": share}
    similar, random = ({**here, "sampler.name": name} for name in ("similarity", "random"))
    where = f"{_name(method)}, {labels.value('participation', share)}"
    return paired(trials, similar, random, where)


def sooner(method: str, others: Iterable[str]) -> Compare:
    """Rounds that a method is ahead of others on the way to the accuracy that FedAvg ends with."""

    def compare(study: Study) -> Iterator[Comparison]:
        for here in _cells(study, ["data.dataset"]):
            arrivals = _arrivals(study, here)
            for other in others:
                ours, theirs = ({"method.name": name} for name in (method, other))
                where = f"{_cell_name(here)}: rounds saved on {_name(other)}"
                # The fewer rounds the better, so they change sides.
                yield paired(arrivals, theirs, ours, where)

    return compare


def _arrivals(study: Study, here: Mapping[str, Any]) -> Trials:
    """Trials with the round in which they first have what FedAvg ends with, seed by seed.

    One that never has counts as arriving one round after its end.
    """
    trials = _with(_accuracy(study), here)
    targets = {own["seed"]: own["value"] for own in _with(trials, {"method.name": "fedavg"})}
    rounds = study.finished
    arrival = scores.rounds_to(rounds, rounds["seed"].map(targets)).dropna()

    def rounds_needed(own: Mapping[str, Any]) -> float:
        has_target = not math.isnan(targets.get(own["seed"], math.nan))
        return float(arrival.get(own["run_id"], own["rounds"] + 1)) if has_target else math.nan

    return [{**own, "value": rounds_needed(own)} for own in trials]


def stable(study: Study) -> Iterator[Comparison]:
    """Any two of the cells that the paper calls stable are within `MARGIN` of each other."""
    trials = _accuracy(study)
    cells = _cells(study, ["sampler.ema", "sampler.greedy_fraction"])
    for one, two in combinations(cells, 2):
        for above, below in permutations((one, two)):
            where = f"{MARGIN:g} − ({_cell_name(above)} − {_cell_name(below)})"
            pair = paired(trials, above, below, where)
            yield pair._replace(differences=MARGIN - pair.differences)


def falls(*, at_every_step: bool, **wanted: Any) -> Compare:
    """Minus the share of clients' losses that go up under FedCOME; zero if none does."""
    here = {"method.name": "fedcome"} | {n.replace("__", "."): v for n, v in wanted.items()}

    def compare(study: Study) -> Iterator[Comparison]:
        rises = _with(_rises(study, at_every_step=at_every_step), here)
        what = "steps" if at_every_step else "clients"
        values = pd.Series({own["seed"]: -own["value"] for own in rises}, dtype=float)
        runs = [own["run_id"] for own in rises]
        yield Comparison(f"− share of {what} that go up, %", values, runs)

    return compare


def smoother_with_sampler(study: Study) -> Iterator[Comparison]:
    rises = _rises(study, at_every_step=True)
    for here in _cells(study, ["participation"]):
        cell = {"method.name": "fedcome", **here}
        random, similar = ({**cell, "sampler.name": name} for name in ("random", "similarity"))
        if here["participation"] != 1:
            where = f"{_cell_name(here)}: share of steps that go up, %: random − similarity"
            yield paired(rises, random, similar, where)


def _rises(study: Study, *, at_every_step: bool) -> Trials:
    """Trials with the share of their clients' losses that went up, in %."""
    share = scores.share_of_steps_up if at_every_step else scores.share_of_clients_up
    metric = scores.loss_metric(study.clients)
    values = {
        run_id: 100 * share(scores.client_losses(own, metric))
        for run_id, own in study.clients.groupby("run_id")
    }
    return [own for own in _valued(study, values) if not math.isnan(own["value"])]


def sharper(study: Study) -> Iterator[Comparison]:
    trials = _valued(study, scores.fairness(study.clients)["std"])
    for here in _cells(study, ["data.dataset", "data.test_split"]):
        fedfv, fedcome = ({"method.name": name, **here} for name in ("fedfv", "fedcome"))
        yield paired(trials, fedfv, fedcome, f"{_cell_name(here)}: std of FedFV − FedCOME")


def no_conflict_left(study: Study) -> Iterator[Comparison]:
    own = study.finished[study.finished["method.name"] == "fedcome"]
    if metrics.CONFLICTS_AFTER in own:
        own = own.dropna(subset=metrics.CONFLICTS_AFTER)
        most = own.groupby("seed")[metrics.CONFLICTS_AFTER].max()
        yield Comparison("− most conflicts left in a round", -most, list(own["run_id"].unique()))


def beats_longer_steps(study: Study) -> Iterator[Comparison]:
    """FedCOME against FedAvg with the server rate that is best on held-out examples.

    So each seed's rate is chosen without a look at the test examples.
    """
    trials = _accuracy(study)
    fedavg = _with(trials, {"method.name": "fedavg"})
    held_out = [own for own in fedavg if "data.validation" in own]
    rates = {own["seed"]: own["method.server_lr"] for own in sorted(held_out, key=_by_value)}
    tuned = [own for own in fedavg if own["method.server_lr"] == rates.get(own["seed"])]
    where = "FedCOME − FedAvg with the server rate that is best on held-out examples"
    ours, theirs = ({"method.name": name} for name in ("fedcome", "fedavg"))
    both = [*_with(trials, PLAIN_FEDCOME), *tuned]
    yield paired(both, ours, theirs, where, DATA_AND_SAMPLER)


def _by_value(trial: Mapping[str, Any]) -> float:
    """For sorting: what diverged comes first."""
    return -math.inf if math.isnan(trial["value"]) else float(trial["value"])


def beats_at_equal_length(study: Study) -> Iterator[Comparison]:
    cut = PLAIN_FEDCOME | {"method.match_norm": True}
    rival = {"method.name": "fedavg", "method.server_lr": 1.0}
    where = "FedCOME cut to FedAvg's length − FedAvg"
    yield paired(_accuracy(study), cut, rival, where, DATA_AND_SAMPLER)


def _lead(trials: Trials, method: str, other: str, here: Mapping[str, Any]) -> Comparison:
    ours, theirs = ({"method.name": name, **here} for name in (method, other))
    return paired(trials, ours, theirs, f"{_cell_name(here)}: {_name(method)} − {_name(other)}")


def _difference(more: list[Comparison], less: list[Comparison], where: str) -> Comparison:
    """The mean of some comparisons minus the mean of others, seed by seed."""
    table = pd.concat([own.differences for own in (*more, *less)], axis=1, join="inner")
    sides = table.iloc[:, : len(more)], table.iloc[:, len(more) :]
    ours, theirs = (side.mean(axis=1, skipna=False) for side in sides)
    runs = [run for own in (*more, *less) for run in own.runs]
    return Comparison(where, ours - theirs, runs)


def _cells(study: Study, settings: Iterable[str]) -> list[dict[str, Any]]:
    """The values of some settings that were run together, in the paper's order."""
    keys = list(settings)
    found = labels.in_order(scores.trials(study.frame)[keys].drop_duplicates(), keys)
    rows = found.astype(object).where(found.notna(), None)
    return [dict(zip(keys, values, strict=True)) for values in rows.itertuples(index=False)]


def _cell_name(here: Mapping[str, Any]) -> str:
    words = [labels.value(setting, value) for setting, value in here.items()]
    return ", ".join(filter(None, words))


def _with(trials: Trials, wanted: Mapping[str, Any]) -> Trials:
    """The trials with these settings; None is a setting that a trial has not got."""
    return [own for own in trials if all(own.get(name) == value for name, value in wanted.items())]


def _accuracy(study: Study) -> Trials:
    return _valued(study, scores.tail(study.finished))


def _valued(study: Study, values: Any) -> Trials:
    """The finished trials with a value by run id; plain records, since claims make many pairs."""
    trials = scores.trials(study.finished)
    rows = trials.assign(value=trials["run_id"].map(values).astype(float)).to_dict("records")
    return [
        {str(name): value for name, value in row.items() if name == "value" or pd.notna(value)}
        for row in rows
    ]


def _name(method: str) -> str:
    return labels.value("method.name", method)


def as_table(findings: Iterable[Finding]) -> TextTable:
    rows = [
        {
            "claim": f.claim.text,
            "in the paper": f.claim.source or "no: a control",
            "verdict": f.verdict,
            "why": f.reason,
            "run": f.where,
            "grid": f.grid,
        }
        for f in findings
    ]
    return TextTable("claims", "Claims of the paper", "", pd.DataFrame(rows))


def comparisons(findings: Iterable[Finding]) -> pd.DataFrame:
    """Every comparison of every claim: a row each, for programs."""
    return pd.DataFrame(
        [
            {
                "claim": finding.claim.name,
                **{k: v for k, v in part._asdict().items() if k not in {"evidence", "runs"}},
                "p_holds": float(part.evidence.holds),
                "p_fails": float(part.evidence.fails),
                "runs": " ".join(part.runs),
            }
            for finding in findings
            for part in [*finding.parts, *([finding.pooled] if finding.pooled else [])]
        ]
    )
