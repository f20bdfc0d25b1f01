"""What each claim compares: functions from the part of a study that it is about to comparisons.

A comparison has one number for each seed, positive if it speaks for the claim. Accuracies are
means over the last tenth of the rounds. Comparisons are made in every cell that was run; the
paper's methods must all be there, and a pair that is not has a comparison without seeds, which
keeps a claim from holding.
"""

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
    scored: pd.DataFrame,
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
    finished = scored[scored["status"] == "FINISHED"]
    ours, theirs = (_with(finished, own) for own in (better, worse))
    same = ["seed", "rounds", *(s for s in scores.settings(scored) if s.startswith(alike))]
    pairs = ours.merge(theirs, on=same, suffixes=("", "/other"))
    pairs = pairs.sort_values(["rounds", "launch"]).drop_duplicates("seed", keep="last")
    pairs = pairs.set_index("seed").sort_index()
    differences = pairs["value"] - pairs["value/other"]
    return Comparison(where, differences, [*pairs["run_id"], *pairs["run_id/other"]])


def ahead(leaders: Iterable[str], rest: Iterable[str], *cell: str) -> Compare:
    """Each of `leaders` is ahead of each of the `rest` in every cell, told by its settings."""

    def compare(study: Study) -> Iterator[Comparison]:
        scored = _accuracy(study)
        for here in _cells(study, cell):
            for leader in leaders:
                for other in rest:
                    yield _lead(scored, leader, other, here)

    return compare


def best(method: str, *cell: str) -> Compare:
    """`method` is ahead of the paper's other methods in every cell."""
    return ahead([method], [other for other in PAPER if other != method], *cell)


def comparable(method: str, other: str, *cell: str) -> Compare:
    """Two methods are within `MARGIN` of each other: two one-sided tests."""

    def compare(study: Study) -> Iterator[Comparison]:
        scored = _accuracy(study)
        for here in _cells(study, cell):
            for one, two in permutations((method, other)):
                lead = _lead(scored, one, two, here)
                yield lead._replace(
                    where=f"{MARGIN:g} − ({lead.where})", differences=MARGIN - lead.differences
                )

    return compare


def lead_grows(method: str, other: str, setting: str) -> Compare:
    """The lead of one method over another is larger at the smallest value than at the largest."""

    def compare(study: Study) -> Iterator[Comparison]:
        scored = _accuracy(study)
        cells = _cells(study, [setting])
        if len(cells) > 1:
            leads = [_lead(scored, method, other, here) for here in (cells[0], cells[-1])]
            yield _difference(leads[:1], leads[1:], " − ".join(f"({own.where})" for own in leads))

    return compare


def sampler_gain(study: Study) -> Iterator[Comparison]:
    for here in _cells(study, ["participation"]):
        for method in PAPER:
            yield _gain(study, method, here["participation"])


def gain_shrinks(study: Study) -> Iterator[Comparison]:
    shares = [here["participation"] for here in _cells(study, ["participation"])]
    few = [_gain(study, "fedcome", share) for share in shares if share <= FEW]
    many = [_gain(study, "fedcome", share) for share in shares if share > FEW]
    if few and many:
        words = (f"with up to {labels.value('participation', FEW)}", "with more clients")
        yield _difference(few, many, f"FedCOME's gain {' − '.join(words)}")


def _gain(study: Study, method: str, share: float) -> Comparison:
    here = {"method.name": method, "participation": share}
    similar, random = ({**here, "sampler.name": name} for name in ("similarity", "random"))
    where = f"{_name(method)}, {labels.value('participation', share)}"
    return paired(_accuracy(study), similar, random, where)


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


def _arrivals(study: Study, here: Mapping[str, Any]) -> pd.DataFrame:
    """Trials with the round in which they first have what FedAvg ends with, seed by seed.

    One that never has counts as arriving one round after its end.
    """
    trials = _with(_accuracy(study), here)
    fedavg = _with(trials, {"method.name": "fedavg"}).drop_duplicates("seed", keep="last")
    targets = trials["seed"].map(fedavg.set_index("seed")["value"])
    rounds = _with(study.finished, here)
    target = rounds["run_id"].map(targets.set_axis(trials["run_id"]))
    arrival = scores.rounds_to(rounds, target)
    late = trials["rounds"] + 1
    arrived = trials["run_id"].map(arrival).fillna(late)
    return trials.assign(value=arrived.where(targets.notna()))


def stable(study: Study) -> Iterator[Comparison]:
    """Any two of the cells that the paper calls stable are within `MARGIN` of each other."""
    scored = _accuracy(study)
    cells = _cells(study, ["sampler.ema", "sampler.greedy_fraction"])
    for one, two in combinations(cells, 2):
        for above, below in permutations((one, two)):
            where = f"{MARGIN:g} − ({_cell_name(above)} − {_cell_name(below)})"
            pair = paired(scored, above, below, where)
            yield pair._replace(differences=MARGIN - pair.differences)


def falls(*, at_every_step: bool, **wanted: Any) -> Compare:
    """Minus the share of clients' losses that go up under FedCOME; zero if none does."""
    here = {"method.name": "fedcome"} | {n.replace("__", "."): v for n, v in wanted.items()}

    def compare(study: Study) -> Iterator[Comparison]:
        rises = _with(_rises(study, at_every_step=at_every_step), here)
        what = "steps" if at_every_step else "clients"
        values = -rises.set_index("seed")["value"]
        yield Comparison(f"− share of {what} that go up, %", values, list(rises["run_id"]))

    return compare


def smoother_with_sampler(study: Study) -> Iterator[Comparison]:
    rises = _rises(study, at_every_step=True)
    for here in _cells(study, ["participation"]):
        cell = {"method.name": "fedcome", **here}
        random, similar = ({**cell, "sampler.name": name} for name in ("random", "similarity"))
        if here["participation"] != 1:
            where = f"{_cell_name(here)}: share of steps that go up, %: random − similarity"
            yield paired(rises, random, similar, where)


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
    for here in _cells(study, ["data.dataset", "data.test_split"]):
        fedfv, fedcome = ({"method.name": name, **here} for name in ("fedfv", "fedcome"))
        yield paired(trials, fedfv, fedcome, f"{_cell_name(here)}: std of FedFV − FedCOME")


def no_conflict_left(study: Study) -> Iterator[Comparison]:
    own = _with(study.finished, {"method.name": "fedcome"})
    if metrics.CONFLICTS_AFTER in own:
        own = own.dropna(subset=metrics.CONFLICTS_AFTER)
        most = own.groupby("seed")[metrics.CONFLICTS_AFTER].max()
        yield Comparison("− most conflicts left in a round", -most, list(own["run_id"].unique()))


def beats_longer_steps(study: Study) -> Iterator[Comparison]:
    """FedCOME against FedAvg with the server rate that is best on the other seeds.

    So the rate of a seed is chosen without a look at that seed's accuracy.
    """
    scored = _accuracy(study)
    fedavg = _with(scored, {"method.name": "fedavg"}).dropna(subset="value")
    tuned = [
        fedavg[(fedavg["seed"] == seed) & (fedavg["method.server_lr"] == rate)]
        for seed, rate in best_on_other_seeds(fedavg, "method.server_lr").items()
    ]
    fedcome = _with(scored, PLAIN_FEDCOME)
    together = pd.concat([fedcome, *tuned])
    where = "FedCOME − FedAvg with the server rate that is best on the other seeds"
    ours, theirs = ({"method.name": name} for name in ("fedcome", "fedavg"))
    yield paired(together, ours, theirs, where, DATA_AND_SAMPLER)


def best_on_other_seeds(scored: pd.DataFrame, setting: str) -> dict[Any, Any]:
    """For each seed the value of a setting with the best mean over all other seeds."""
    table = scored.pivot_table(index="seed", columns=setting, values="value").dropna()
    return {seed: table.drop(index=seed).mean().idxmax() for seed in table.index if len(table) > 1}


def beats_at_equal_length(study: Study) -> Iterator[Comparison]:
    cut = PLAIN_FEDCOME | {"method.match_norm": True}
    rival = {"method.name": "fedavg", "method.server_lr": 1.0}
    where = "FedCOME cut to FedAvg's length − FedAvg"
    yield paired(_accuracy(study), cut, rival, where, DATA_AND_SAMPLER)


def _lead(scored: pd.DataFrame, method: str, other: str, here: Mapping[str, Any]) -> Comparison:
    ours, theirs = ({"method.name": name, **here} for name in (method, other))
    return paired(scored, ours, theirs, f"{_cell_name(here)}: {_name(method)} − {_name(other)}")


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
    return [dict(zip(keys, values, strict=True)) for values in found.itertuples(index=False)]


def _cell_name(here: Mapping[str, Any]) -> str:
    words = [labels.value(setting, value) for setting, value in here.items()]
    return ", ".join(filter(None, words))


def _with(trials: pd.DataFrame, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """The trials with these settings; None is a setting that a trial has not got."""
    for setting, value in wanted.items():
        own = trials.get(setting, pd.Series(index=trials.index, dtype=object))
        trials = trials[own.isna() if pd.isna(value) else own == value]
    return trials


def _accuracy(study: Study) -> pd.DataFrame:
    return scores.score(study.frame, scores.ACCURACY["tail"])


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
