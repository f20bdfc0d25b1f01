"""What we found, in plain sentences: one page, from the trials and the findings."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from . import decisions, labels, scores
from .study import Study
from .verdicts import Finding, Part, Verdict, say_seeds

OPENINGS = {
    "full_participation": "With all clients",
    "heterogeneity": "With 2, 3 and 4 classes per client",
    "partial_participation": "With part of the clients in each round",
}
HEADINGS: dict[Verdict, str] = {
    "reproduced": "Reproduced: the paper's own trials confirm it",
    "holds here": "Holds here, in trials that are not the paper's",
    "leans for": "Leans for it, but the seeds do not decide",
    "open": "Open: the seeds point neither way",
    "leans against": "Leans against it, but the seeds do not decide",
    "fails here": "Fails here, in trials that are not the paper's",
    "not reproduced": "Not reproduced: the paper's own trials contradict it",
    "not judged": "Not judged",
}


class Sentence(NamedTuple):
    text: str
    claim: str | None = None  # the name of the claim that it is about


class Group(NamedTuple):
    """Sentences under a heading."""

    heading: str
    verdict: Verdict | None
    sentences: list[Sentence]


def what_we_found(studies: Iterable[Study], findings: Sequence[Finding]) -> list[Group]:
    """First how FedCOME did, then the claims, those that hold before those that fail."""
    sentences = [Sentence(text) for study in studies for text in how_fedcome_did(study)]
    groups = [Group("How FedCOME did", None, sentences)] if sentences else []
    for verdict, heading in HEADINGS.items():
        own = [finding for finding in findings if finding.verdict == verdict]
        if own:
            say = _unjudged if verdict == "not judged" else _judged
            groups.append(Group(heading, verdict, list(say(own))))
    return groups


def markdown(groups: Iterable[Group]) -> str:
    blocks = [
        f"## {group.heading}\n\n" + "\n".join(f"- {own.text}" for own in group.sentences)
        for group in groups
    ]
    return "\n\n".join(["# What we found", *blocks]) + "\n"


def how_fedcome_did(study: Study) -> Iterator[str]:
    """Beside FedAvg and the best, dataset by dataset; the last tenth of the rounds counts."""
    if study.grid not in OPENINGS:
        return
    scored = scores.score(study.finished, scores.ACCURACY["tail"])
    axes = [name for name in study.layout.rivals if name != "data.dataset"]
    for dataset, trials in scored.groupby("data.dataset", sort=False):
        cells = [labels.join(axes, row) for _, row in trials.iterrows()]
        accuracies = trials.assign(cell=cells).set_index(["cell", "seed", "method.name"])["value"]
        methods = accuracies.index.unique("method.name")
        if "fedcome" in methods and len(methods) > 1:
            data = labels.value("data.dataset", dataset)
            opening = f"{OPENINGS[study.grid]}, on {data} ({_run(study, trials)}),"
            yield " ".join([*_beside_fedavg(accuracies, opening), *_beside_best(accuracies)])


def _run(study: Study, trials: pd.DataFrame) -> str:
    seeds = trials["seed"].nunique()
    rounds = "/".join(str(number) for number in sorted(trials["rounds"].unique()))
    changed = f" with {study.changes}" if study.changes else ""
    plural = "s" if seeds > 1 else ""
    return f"{rounds} rounds, {seeds} seed{plural}, profile {study.profile}{changed}"


def _beside_fedavg(accuracies: "pd.Series[float]", opening: str) -> Iterator[str]:
    """`accuracies` by cell, seed and method."""
    table = accuracies.unstack("method.name")
    if "fedavg" in table:
        yield f"{opening} FedCOME was {_gap(table['fedcome'] - table['fedavg'], 'FedAvg')}."
    else:
        yield f"{opening} FedAvg was not run."


def _beside_best(accuracies: "pd.Series[float]") -> Iterator[str]:
    by_cell = accuracies.groupby(["cell", "method.name"], sort=False)
    # A method that diverged is not the best.
    means = by_cell.agg(lambda values: values.mean(skipna=False)).unstack("method.name")
    means = means[means["fedcome"].notna()]
    best, num = means.idxmax(axis=1).astype(str), means.shape[1]
    if means.empty:
        yield "It diverged."
    elif len(means) > 1:
        won = int((best == "fedcome").sum())
        yield f"It was the best of {num} methods in {won} of {len(means)} cells."
        yield from _winners(means, best)
    elif len(rivals := means.iloc[0].drop("fedcome").dropna()):
        table, rival = accuracies.unstack("method.name"), str(rivals.idxmax())
        gap = _gap(table["fedcome"] - table[rival], labels.value("method.name", rival))
        is_best = best.iloc[0] == "fedcome"
        yield f"It was {'' if is_best else 'not '}the best of {num} methods: it was {gap}."


def _winners(means: pd.DataFrame, best: "pd.Series[str]") -> Iterator[str]:
    """Who was ahead of FedCOME, by how much and where."""
    for winner in best[best != "fedcome"].unique():
        cells = best.index[best == winner]
        gaps = (means.loc[cells, winner] - means.loc[cells, "fedcome"]).sort_values()
        ends = dict.fromkeys([_number(gaps.iloc[0]), _number(gaps.iloc[-1])])
        name = labels.value("method.name", winner)
        yield f"{name} was ahead by {' to '.join(ends)} points at {'; '.join(cells)}."


def _gap(differences: "pd.Series[float]", other: str) -> str:
    """The mean difference over cells, seed by seed, in words."""
    num_cells = differences.dropna().index.get_level_values("cell").nunique()
    by_seed = np.asarray(differences.groupby("seed").mean().dropna(), dtype=np.float64)
    if not len(by_seed):
        return f"not comparable with {other}: there is no seed that both finished without diverging"
    mean, (low, high) = float(by_seed.mean()), decisions.interval(by_seed)
    across = f", on average over {num_cells} cells" if num_cells > 1 else ""
    points = f"{_number(abs(mean))} points"
    if math.isnan(low):
        return f"{'ahead of' if mean > 0 else 'behind'} {other} by {points}{across}, one seed"
    if low <= 0 <= high:
        interval = f"95 % interval {_signed(low)} to {_signed(high)}"
        return f"about level with {other}: {_signed(mean)} points ({interval}){across}"
    ends = sorted((abs(low), abs(high)))
    interval = f"95 % interval {_number(ends[0])} to {_number(ends[1])}"
    return f"{'ahead of' if mean > 0 else 'behind'} {other} by {points} ({interval}){across}"


def _judged(findings: Sequence[Finding]) -> Iterator[Sentence]:
    for finding in findings:
        parts = [finding.claim.text, _evidence(finding), f"({finding.where}.)"]
        if needed := say_seeds(finding.seeds_to_decide):
            parts.insert(2, f"{needed[0].upper()}{needed[1:]}.")
        yield Sentence(" ".join(parts), finding.claim.name)


def _evidence(finding: Finding) -> str:
    unit = finding.claim.unit
    there = [part for part in finding.parts if part.seeds]
    if finding.pooled is not None:
        return f"On average {_difference(finding.pooled, unit)}."
    if finding.claim.kind == "in every run":
        worst = min(there, key=lambda part: part.low)
        runs = sum(len(part.runs) for part in there)
        if worst.low >= 0:
            return f"No counterexample in {runs} run{'s' if runs > 1 else ''}."
        return f"The worst of {runs} runs: {worst.where}, {_signed(worst.low)}."
    against = sum(part.difference < 0 for part in there)
    worst = min(there, key=lambda part: part.difference if math.isnan(part.low) else part.low)
    if finding.verdict in {"not reproduced", "fails here", "leans against"}:
        worst = min(there, key=lambda part: (float(part.evidence.fails), part.difference))
    missing = len(finding.parts) - len(there)
    not_run = f", {missing} not run" if missing else ""
    tally = f"{against} of {len(there)} comparisons point the other way{not_run}"
    return f"{tally}; the least favourable is {worst.where}: {_difference(worst, unit)}."


def _unjudged(findings: Sequence[Finding]) -> Iterator[Sentence]:
    """Claims that share a reason share a sentence."""
    reasons: dict[str, list[Finding]] = {}
    for finding in findings:
        reasons.setdefault(finding.reason.split(";")[0], []).append(finding)
    for reason, own in reasons.items():
        names = ", ".join(finding.claim.name for finding in own)
        claim = own[0].claim.name if len(own) == 1 else None
        yield Sentence(f"{reason[0].upper()}{reason[1:]}: {names}.", claim)


def _difference(part: Part, unit: str) -> str:
    if not math.isfinite(part.low):
        return f"{_signed(part.difference)} {unit}"
    interval = f"95 % interval {_signed(part.low)} to {_signed(part.high)}"
    return f"{_signed(part.difference)} {unit} ({interval})"


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _signed(value: float) -> str:
    if not math.isfinite(value):
        return "no number"
    return ("+" if value > 0 else "−" if value < 0 else "") + _number(abs(value))
