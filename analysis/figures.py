"""The figures, for print: functions of a study that return a matplotlib figure.

A function returns None where the store does not hold what the figure shows.
"""

import io
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcome_ray import metrics

from . import labels, scores, style
from .curves import curves
from .study import Study
from .tables import paper_table

WIDTH = 7.0  # inches: the text width of a two-column page
COLUMNS = 4  # of small multiples
LETTERS = 100  # in a line of the page's width
LEGEND_LINES = 4  # for which a figure has room
LINE = 0.17  # inches: a line of a legend
ACCURACY_WORDS = "test accuracy, %"
EARLY = 0.1  # share of the rounds in which curves rise steeply
MOST_CURVES = 12  # more in a panel cannot be told apart
PHASES = {"sample": "#56b4e9", "train": "#0072b2", "aggregate": "#d55e00", "evaluate": "#b3b3b3"}
RC: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": style.INK,
    "axes.grid": True,
    "axes.labelcolor": style.INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.dpi": 160,
    "font.size": 8,
    "grid.color": style.FAINT,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "svg.hashsalt": "fedcome",  # the same figure is the same file
    "text.color": style.INK,
    "xtick.color": style.INK,
    "ytick.color": style.INK,
}


class Plot(NamedTuple):
    """A kind of figure."""

    name: str
    make: Callable[[Study], Figure | None]
    caption: str
    metrics: tuple[str, ...] = ()
    """Those that it shows of a round."""


class Drawing(NamedTuple):
    """A plot of a study."""

    name: str
    caption: str
    figure: Figure
    metrics: tuple[str, ...]


def draw(study: Study, plots: Iterable[Plot]) -> Iterator[Drawing]:
    """The plots for which the study has data."""
    with mpl.rc_context(RC):
        for plot in plots:
            figure = plot.make(study)
            if figure is not None:
                _settle(figure)
                yield Drawing(f"{study.grid}_{plot.name}", plot.caption, figure, plot.metrics)


def _settle(figure: Figure) -> None:
    """Lay the figure out once: it is written several times, and this is most of the work."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def as_bytes(figure: Figure, kind: str, *, for_page: bool = False) -> bytes:
    """Without the date that matplotlib writes into an SVG: the same figure is the same file.

    A page has a background and fonts of its own.
    """
    buffer = io.BytesIO()
    settings = RC | {"svg.fonttype": "none" if for_page else "path"}
    metadata = {"Date": None} if kind == "svg" else None
    with mpl.rc_context(settings):
        figure.savefig(buffer, format=kind, metadata=metadata, transparent=for_page)
    return buffer.getvalue()


def convergence(study: Study) -> Figure | None:
    table = curves(study, metrics.ACCURACY)
    if table.empty or table["round"].nunique() < 2 or _num_curves(table) > MOST_CURVES:
        return None
    figure = _panels(table, ACCURACY_WORDS)
    figure.axes[0].set_ylim(*_late_range(table))
    return figure


def communication(study: Study) -> Figure | None:
    accuracy, sent = curves(study, metrics.ACCURACY), curves(study, metrics.TOTAL_BYTES)
    if sent.empty or accuracy["round"].nunique() < 2 or _num_curves(accuracy) > MOST_CURVES:
        return None
    place = ["panel", "label", "round"]
    table = accuracy.merge(sent[[*place, "mean"]], on=place, how="left", suffixes=("", "_sent"))
    table.loc[table["round"] == 0, "mean_sent"] = 0.0
    unit, size = _unit_of_bytes(table["mean_sent"].max())
    across = f"{unit} sent, up and down"
    figure = _panels(table.assign(**{across: table["mean_sent"] / size}), ACCURACY_WORDS, across)
    for axis in figure.axes:
        axis.xaxis.set_major_locator(MaxNLocator(5))
    figure.axes[0].set_ylim(*_late_range(table))
    return figure


def _unit_of_bytes(most: float) -> tuple[str, float]:
    """The largest unit of which there is at least one, and its bytes."""
    units = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}
    return next((pair for pair in units.items() if most >= pair[1]), ("bytes", 1.0))


def _late_range(table: pd.DataFrame) -> tuple[float | None, float | None]:
    """Where the curves are after the first tenth; their steep beginning would flatten the rest."""
    late = table[table["round"] > EARLY * table["round"].max()]
    low, high = (late["mean"] - late["std"]).min(), (late["mean"] + late["std"]).max()
    if not low < high:  # also if all have diverged
        return None, None
    margin = 0.08 * (high - low)
    return max(0.0, low - margin), min(100.0, high + margin)


def rounds_to_target(study: Study) -> Figure | None:
    """The target of a panel is the accuracy that FedAvg ends with."""
    table = curves(study, metrics.ACCURACY)
    is_by_method = study.layout.curve == ["method.name"]
    if not is_by_method or "fedavg" not in set(table["method"]) or table["round"].nunique() < 2:
        return None
    panels = list(table.groupby("panel", sort=False))
    figure, axes = _subplots(len(panels), height=1.9)
    for axis, (title, panel) in zip(axes, panels, strict=True):
        target = panel.loc[panel["method"] == "fedavg", "mean"].iloc[-1]
        _target_bars(axis, panel, target)
        axis.set_title(f"{title}\nto {target:.1f} %".strip())
    for place, axis in enumerate(axes):
        if place % COLUMNS:
            axis.set_yticklabels([])
    figure.supxlabel("rounds", fontsize=8)
    return figure


def _target_bars(axis: Axes, panel: pd.DataFrame, target: float) -> None:
    most = panel["round"].max()
    looks = _looks(panel)
    for place, (label, own) in enumerate(panel.groupby("label", sort=False)):
        reached = own.loc[own["mean"] >= target, "round"]
        if reached.empty:
            axis.text(0, place, " never", va="center", fontsize=7, style="italic")
            continue
        rounds = reached.iloc[0]
        axis.barh(place, rounds, color=looks[str(label)].colour, height=0.7)
        axis.text(rounds, place, f" {rounds:.0f}", va="center", fontsize=7)
    axis.set_yticks(range(len(looks)), list(looks))
    axis.set_xlim(0, most * 1.12)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")


def conflicts(study: Study) -> Figure | None:
    """FedCOME's conflicting pairs and the length of its step, over rounds, for each panel."""
    before, after, ratio = (
        _of_fedcome(curves(study, m))
        for m in (metrics.CONFLICTS_BEFORE, metrics.CONFLICTS_AFTER, metrics.STEP_RATIO)
    )
    if before.empty or before.groupby(["panel", "label"]).ngroups > MOST_CURVES:
        return None
    figure, axes = _subplots(2, height=2.4)
    for axis, table in ((axes[0], before), (axes[0], after), (axes[1], ratio)):
        for look, (title, own) in zip(style.ANONYMOUS, _groups(table), strict=False):
            label = title if table is before else None
            axis.plot(
                own["round"], own["mean"], color=look.colour, linestyle=look.line, label=label
            )
        axis.set_xlabel("round")
    axes[0].set_title("conflicting pairs: above before, at zero after the consensus")
    axes[1].axhline(1.0, color=style.INK, linewidth=0.8, linestyle=":")
    axes[1].set_title("length of the server's step, FedAvg's = 1")
    _legend(figure, axes[0])
    return figure


def opposed(study: Study) -> Figure | None:
    table = curves(study, metrics.OPPOSED)
    if table.empty or _num_curves(table) > MOST_CURVES:
        return None
    return _panels(table, "clients opposed to the step")


def client_loss(study: Study) -> Figure | None:
    """Every client's loss, one seed; the bold line is the mean."""
    if study.clients.empty:
        return None
    metric = scores.loss_metric(study.clients)
    trials = scores.trials(study.finished)
    trials = trials[trials["seed"] == trials["seed"].min()]
    keys = list(study.layout.keys)
    trials = labels.in_order(trials, keys)
    figure, axes = _subplots(len(trials), height=1.9, columns=3, sharey=True)
    for axis, (_, trial) in zip(axes, trials.iterrows(), strict=True):
        own = study.clients[study.clients["run_id"] == trial["run_id"]]
        losses = scores.client_losses(own, metric)
        look = style.LOOKS.get(trial["method.name"], style.ANONYMOUS[0])
        rounds = losses.index
        axis.plot(rounds, losses, color=look.colour, alpha=0.25, linewidth=0.5, rasterized=True)
        axis.plot(rounds, losses.mean(axis=1), color=style.INK, linewidth=1.4)
        rises = 100 * scores.share_of_steps_up(losses)
        axis.set_title(f"{labels.join(keys, trial)}\n{rises:.1f} % of the steps go up")
    figure.supxlabel("round", fontsize=8)
    figure.supylabel(f"{metric.replace('_', ' ')} of every client", fontsize=8)
    return figure


def accuracy_histograms(study: Study) -> Figure | None:
    return _by_dataset_and_split(study, _histogram, "test accuracy of a client, %", "clients, %")


def sorted_accuracies(study: Study) -> Figure | None:
    """Clients from the worst served to the best: the flatter and the higher a line, the fairer."""
    words = "clients, from worst to best, %", "test accuracy, %"
    return _by_dataset_and_split(study, _sorted_lines, *words)


def _by_dataset_and_split(
    study: Study, draw_panel: Callable[[Axes, pd.DataFrame], None], across: str, up: str
) -> Figure | None:
    """A panel for each dataset and way to split its test examples."""
    if study.clients.empty:
        return None
    last = study.clients.groupby("run_id")["round"].transform("max") == study.clients["round"]
    final = study.clients[last].merge(scores.trials(study.finished), on="run_id")
    final = final.assign(accuracy=100 * final["test_accuracy"].astype(float))
    final = final.dropna(subset="accuracy")  # of clients without an example to be tested on
    keys = ["data.dataset", "data.test_split"]
    panels = sorted(final.groupby(keys, dropna=False), key=lambda own: _in_order(keys, own[0]))
    figure, axes = _subplots(len(panels), height=2.4)
    for axis, ((dataset, split), panel) in zip(axes, panels, strict=True):
        draw_panel(axis, panel)
        words = [labels.value("data.dataset", dataset), labels.value("data.test_split", split)]
        axis.set_title(", ".join(filter(None, words)))
    figure.supxlabel(across, fontsize=8)
    axes[0].set_ylabel(up)
    _legend(figure, axes[0])
    return figure


def _histogram(axis: Axes, panel: pd.DataFrame) -> None:
    bins = list(np.linspace(np.floor(panel["accuracy"].min() / 5) * 5, 100, 16))
    for method, own, look in _methods(panel):
        values = own["accuracy"].to_numpy(np.float64)
        weights = np.full(len(values), 100 / len(values))
        axis.hist(values, bins, weights=weights, color=look.colour, alpha=0.3)
        axis.hist(values, bins, weights=weights, color=look.colour, histtype="step", linewidth=1.4)
        axis.plot([], [], color=look.colour, label=method)


def _sorted_lines(axis: Axes, panel: pd.DataFrame) -> None:
    """A thin line for each seed and a bold one for their mean, client by client in rank."""
    for method, own, look in _methods(panel):
        by_seed = [np.sort(seed.to_numpy()) for _, seed in own.groupby("run_id")["accuracy"]]
        places = np.linspace(0, 100, 101)
        lines = [np.interp(places, np.linspace(0, 100, len(seed)), seed) for seed in by_seed]
        for line in lines:
            axis.plot(places, line, color=look.colour, linewidth=0.5, alpha=0.5)
        mean = np.mean(lines, axis=0)
        axis.plot(places, mean, color=look.colour, linestyle=look.line, linewidth=1.8, label=method)


def _methods(panel: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, style.Look]]:
    groups = list(panel.groupby("method.name"))
    groups.sort(key=lambda own: labels.order("method.name", own[0]))
    looks = style.looks({str(method): str(method) for method, _ in groups})
    for method, own in groups:
        yield labels.value("method.name", method), own, looks[str(method)]


def sensitivity(study: Study) -> Figure | None:
    ours = scores.score(study.frame, scores.ACCURACY["last"]).dropna(subset="value")
    paper = paper_table(study.grid)
    if ours.empty or paper is None:
        return None
    dataset = ", ".join(labels.value("data.dataset", d) for d in ours["data.dataset"].unique())
    figure, axes = _subplots(2, height=2.9)
    _heat(axes[0], _grid(ours, "value"), f"ours, {dataset}")
    _heat(axes[1], _grid(paper, "paper"), "paper, CIFAR-10")
    return figure


def _grid(cells: pd.DataFrame, values: str) -> pd.DataFrame:
    return cells.pivot_table(values, index="sampler.ema", columns="sampler.greedy_fraction")


def _heat(axis: Axes, values: pd.DataFrame, title: str) -> None:
    image = axis.imshow(values, cmap="cividis", origin="lower")
    middle = (values.min().min() + values.max().max()) / 2
    for (row, column), number in np.ndenumerate(values.to_numpy(np.float64)):
        if not np.isnan(number):
            colour = "black" if number > middle else "white"
            axis.text(column, row, f"{number:.1f}", ha="center", va="center", color=colour)
    axis.set_xticks(range(len(values.columns)), [f"{v:g}" for v in values.columns])
    axis.set_yticks(range(len(values.index)), [f"{v:g}" for v in values.index])
    axis.set_xlabel("share chosen by similarity, μ")
    axis.set_ylabel("memory of the table, α")
    axis.set_title(title)
    axis.grid(visible=False)
    axis.figure.colorbar(image, ax=axis, shrink=0.8, label="accuracy, %")


def similarity(study: Study) -> Figure | None:
    """The sampler's table at the end of a trial, clients in the order of their classes."""
    if study.similarity.empty or study.population.empty:
        return None
    run_id = study.similarity["run_id"].iloc[0]
    own = study.population[study.population["run_id"] == run_id]
    classes = own.set_index("client")["classes"].sort_values()
    matrix = study.similarity.pivot(index="client", columns="other", values="similarity")
    matrix = matrix.loc[classes.index, classes.index]
    figure, axes = _subplots(1, height=4.6)
    figure.set_figwidth(5.4)
    axis = axes[0]
    limit = float(np.abs(matrix.to_numpy()[~np.eye(len(matrix), dtype=bool)]).max()) or 1.0
    image = axis.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest")
    trial = scores.trials(study.frame).set_index("run_id").loc[run_id]
    words = f"{labels.join(study.layout.keys, trial)}, seed {trial['seed']}"
    axis.set_title(textwrap.fill(words, LETTERS // 2))  # it is as wide as the table is
    starts = [i for i in range(len(classes)) if i == 0 or classes.iloc[i] != classes.iloc[i - 1]]
    axis.set_yticks(starts, [classes.iloc[i] for i in starts], fontsize=5)
    axis.set_xticks([])
    axis.set_xlabel("client, in the order of classes")
    axis.set_ylabel("classes of the client")
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis, shrink=0.8, label="similarity of updates (moving average)")
    return figure


def time_breakdown(study: Study) -> Figure | None:
    """Without the first round, in which kernels are compiled."""
    warm = study.finished[study.finished["round"] > 1]
    keys = ["method.name"]
    if study.layout.column == "data.num_clients":
        keys.append("data.num_clients")
    columns = {p: name for p in PHASES if (name := metrics.of_seconds(p)) in warm}
    if warm.empty or not columns:
        return None
    means = warm.groupby(keys)[list(columns.values())].mean().fillna(0.0).reset_index()
    rows = [row for _, row in labels.in_order(means, keys).iterrows()]
    figure, axes = _subplots(1, height=0.8 + 0.22 * len(rows))
    start = np.zeros(len(rows))
    for phase, column in columns.items():
        seconds = np.array([float(row[column]) for row in rows])
        axes[0].barh(range(len(rows)), seconds, left=start, color=PHASES[phase], label=phase)
        start += seconds
    axes[0].set_yticks(range(len(rows)), [labels.join(keys, row) for row in rows])
    axes[0].invert_yaxis()
    axes[0].grid(visible=False, axis="y")
    axes[0].set_xlabel("seconds per round")
    _legend(figure, axes[0])
    return figure


CONVERGENCE = Plot(
    "convergence",
    convergence,
    "Test accuracy over rounds; lines are means over seeds, bands ± one sample standard deviation. "
    "What lies below the picture is the steep beginning.",
    (metrics.ACCURACY,),
)
COMMUNICATION = Plot(
    "communication",
    communication,
    "Test accuracy against what was sent until then, by the server and by all clients together; "
    "means over seeds, bands ± one sample standard deviation. A method that sends more in a round "
    "gets further to the right in as many rounds.",
    (metrics.ACCURACY, metrics.TOTAL_BYTES),
)
ROUNDS_TO_TARGET = Plot(
    "rounds_to_target",
    rounds_to_target,
    "Rounds until the mean test accuracy first reaches what FedAvg ends with.",
    (metrics.ACCURACY,),
)
SENSITIVITY = Plot(
    "sensitivity",
    sensitivity,
    "Test accuracy of FedCOME over the sampler's memory and share.",
    (metrics.ACCURACY,),
)
CLIENT_LOSS = Plot(
    "client_loss",
    client_loss,
    "Loss of every client over rounds for one seed; black is the mean. The titles say how many of "
    "the steps from round to round and client to client go up.",
)
CLIENT_ACCURACY = Plot(
    "accuracy",
    accuracy_histograms,
    "Distribution of the clients' test accuracy after the last round, all seeds.",
)
SORTED_ACCURACY = Plot(
    "sorted_accuracy",
    sorted_accuracies,
    "Test accuracy of every client after the last round, clients sorted from the worst served to "
    "the best: a thin line for each seed, a bold one for their mean. Flat is fair, high is good.",
)
CONFLICTS = Plot(
    "conflicts",
    conflicts,
    "What the consensus does in FedCOME: pairs of updates in conflict before and after it, and the "
    "length of the server's step relative to FedAvg's.",
    (metrics.CONFLICTS_BEFORE, metrics.CONFLICTS_AFTER, metrics.STEP_RATIO),
)
OPPOSED = Plot(
    "opposed",
    opposed,
    "Clients whose update points away from the server's step.",
    (metrics.OPPOSED,),
)
SIMILARITY = Plot(
    "similarity",
    similarity,
    "The similarity table that the sampler has learned, clients ordered by their classes.",
)
TIME = Plot(
    "time",
    time_breakdown,
    "Where the time of a round goes, mean over rounds and trials.",
    tuple(map(metrics.of_seconds, PHASES)),
)


def _panels(table: pd.DataFrame, words: str, across: str = "round") -> Figure:
    """Curves over a column of the table, whose name stands below it."""
    panels = list(table.groupby("panel", sort=False))
    figure, axes = _subplots(len(panels), height=2.2 if len(panels) > 1 else 3.4, sharey=True)
    looks = _looks(table)
    for axis, (title, panel) in zip(axes, panels, strict=True):
        for place, (label, own) in enumerate(panel.groupby("label", sort=False)):
            _curve(axis, own, own[across], looks[str(label)], str(label), place)
        axis.set_title(str(title))
    figure.supxlabel(across, fontsize=8)
    figure.supylabel(words, fontsize=8)
    _legend(figure, axes[0])
    return figure


def _curve(
    axis: Axes,
    own: pd.DataFrame,
    across: "pd.Series[float]",
    look: style.Look,
    label: str,
    place: int,
) -> None:
    mean, std = own["mean"], own["std"]
    every = max(1, len(own) // 6)
    axis.plot(
        across,
        mean,
        color=look.colour,
        marker=look.marker,
        markevery=(place * every // 7 % every, every),  # markers of different curves side by side
        linewidth=look.width,
        label=label,
        linestyle=look.line,
    )
    if (std > 0).any():
        axis.fill_between(
            across, mean - std, mean + std, color=look.colour, alpha=0.15, linewidth=0
        )


def _subplots(
    num: int, height: float, columns: int = COLUMNS, *, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Small multiples of a page's width; not through pyplot, which would keep them open."""
    columns = min(num, columns)
    rows = -(-num // columns)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    axes = list(grid.flat)
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for axis in axes[num:]:
        axis.set_axis_off()
    return figure, axes[:num]


def _legend(figure: Figure, axis: Axes) -> None:
    """Names, long ones in several lines; what many take is added to the figure."""
    handles, names = axis.get_legend_handles_labels()
    if len(names) < 2:
        return
    mark = 6  # letters that a line's sample and the gap beside it take
    names = [textwrap.fill(name, LETTERS - mark) for name in names]
    widest = max(len(line) for name in names for line in name.splitlines())
    columns = min(LETTERS // (widest + mark), len(names))
    figure.legend(handles, names, loc="outside upper center", ncols=columns)
    lines = -(-sum(name.count("\n") + 1 for name in names) // columns)
    figure.set_figheight(figure.get_figheight() + LINE * max(0, lines - LEGEND_LINES))


def _looks(table: pd.DataFrame) -> dict[str, style.Look]:
    return style.looks(dict(zip(table["label"], table["method"], strict=True)))


def _num_curves(table: pd.DataFrame) -> int:
    return int(table.groupby("panel")["label"].nunique().max())


def _of_fedcome(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["method"] == "fedcome"]


def _groups(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The curves of all panels with names; a method that is alone goes without saying."""
    is_alone = table["label"].nunique() == 1 and table["panel"].nunique() > 1
    keys = ["panel"] if is_alone else ["panel", "label"]
    return [
        (", ".join(filter(None, map(str, key))), own)
        for key, own in table.groupby(keys, sort=False)
    ]


def _in_order(settings: Iterable[str], values: Iterable[Any]) -> list[Any]:
    return [labels.order(name, raw) for name, raw in zip(settings, values, strict=True)]
