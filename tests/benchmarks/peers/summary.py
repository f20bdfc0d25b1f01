"""What the runs of all peers come to: a record for each, a table, a chart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.peers.measurement import MEASURED, Run
from tests.benchmarks.peers.roster import PEERS, REFERENCE

TOLERANCE = 0.03  # of the accuracy: more is not the same training

Results = dict[str, dict[str, Any]]
"""By peer: what was measured, or an error, or both if it did not learn what the others did."""


def summarise(runs: Mapping[str, Sequence[Run]], errors: Mapping[str, str]) -> Results:
    """Medians and spreads, beside those of the reference."""
    results: Results = {name: _medians(own) for name, own in runs.items() if name not in errors}
    reference = results.get(REFERENCE)
    for result in results.values():
        if reference is not None:
            ours, theirs = reference["accuracy"], result["accuracy"]
            cpu = result["cpu_seconds_per_round"]
            result["cpu_ratio"] = cpu / reference["cpu_seconds_per_round"]
            if not abs(theirs - ours) <= TOLERANCE:
                result["error"] = f"broken: its accuracy is {theirs:.1%}, ours {ours:.1%}"
    return results | {name: {"error": error} for name, error in errors.items()}


def _medians(runs: Sequence[Run]) -> dict[str, Any]:
    values = {name: [getattr(run, name) for run in runs] for name in MEASURED}
    spread = {name: [min(own), max(own)] for name, own in values.items()}
    return {name: median(own) for name, own in values.items()} | {"spread": spread}


def table(results: Results) -> str:
    """In Markdown, the cheapest first, those with an error last."""
    lines = [
        "| peer | CPU-s a round | x ours | first round, s | 20 rounds, s | GB | accuracy, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in _ranked(results):
        title = PEERS[name].title
        if "error" in result:
            lines.append(f"| {title} | {result['error'].replace('|', '/')} | | | | | |")
            continue
        cells = [
            _with_spread(result, "cpu_seconds_per_round"),
            _ratio(result, "{:.2f}"),
            f"{result['first_round_s']:.1f}",
            f"{result['round20_s']:.1f}",
            f"{result['memory_gb']:.2f}",
            f"{100 * result['accuracy']:.1f}",
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(workloads: Mapping[str, Results], titles: Mapping[str, str], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(workloads), figsize=(6.5 * len(workloads), 3.8), squeeze=False
    )
    for panel, (name, results) in zip(panels[0], workloads.items(), strict=True):
        shown = {peer: one for peer, one in _ranked(results) if "error" not in one}
        cpu = [one["cpu_seconds_per_round"] for one in shown.values()]
        most = max(cpu, default=1.0)
        ratios = [_ratio(one, ", {:.2f}x") for one in shown.values()]
        labels = [f"{seconds:.2f} s{ratio}" for seconds, ratio in zip(cpu, ratios, strict=True)]
        colours = ["C0" if PEERS[peer].module == "ours" else "C7" for peer in shown]
        bars = panel.barh([PEERS[peer].title for peer in shown], cpu, color=colours)
        panel.bar_label(bars, labels, padding=3)
        panel.set(title=titles[name], xlabel="CPU-seconds per round", xlim=(0, 1.45 * most))
        panel.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def _ranked(results: Results) -> list[tuple[str, dict[str, Any]]]:
    return sorted(
        results.items(),
        key=lambda item: ("error" in item[1], item[1].get("cpu_seconds_per_round", 0.0)),
    )


def _ratio(result: dict[str, Any], form: str) -> str:
    """Nothing, if the reference failed."""
    return form.format(result["cpu_ratio"]) if "cpu_ratio" in result else ""


def _with_spread(result: dict[str, Any], name: str) -> str:
    least, most = result["spread"][name]
    return f"{result[name]:.2f} ({least:.2f}–{most:.2f})"
