"""What a round would cost elsewhere: a model with few terms, fitted to measurements of `scale`.

CPU-seconds of a round are a sum of terms that are known before it: calls, clients, params trained,
bytes written and read, pairs of updates. Their prices are fitted by least squares to relative
errors, none below zero. Bytes follow from the settings. What was not measured, the network, is
assumed, and said to be.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from fedcome_ray.datasets import synthetic
from fedcome_ray.datasets.dataset import DatasetSettings
from tests.benchmarks.scale import Case, Cost

BANDWIDTH = 1.25e9  # bytes a second into the server's node: assumed, 10 Gbit/s
LATENCY = 1e-3  # seconds there and back, once a round: assumed
NODES = 1_000
POPULATION = 1_000_000
WIDE = 71_010  # params, those of the widest model that was measured
COHORTS = np.logspace(2, 6, 41)


class Size(NamedTuple):
    """What the terms are made of."""

    population: float
    cohort: Any  # a number, or an array of them
    shards: float
    dim: float
    is_pairwise: bool  # whether the method needs inner products of updates
    is_drawn: bool

    @staticmethod
    def of(case: Case, cost: Cost) -> "Size":
        return Size(
            case.population,
            case.cohort,
            case.shards,
            cost.dim,
            case.method == "fedcome",
            _is_drawn(case.trial.data),
        )


def _is_drawn(config: DatasetSettings) -> bool:
    assert isinstance(config, synthetic.Synthetic)
    return synthetic.describe(config).are_drawn


def _num_asked(size: Size) -> Any:
    return np.minimum(size.shards, size.cohort)


def _num_blocks(size: Size) -> Any:
    """About: clients of a shard that take as many steps make a block, and sizes are log-normal."""
    asked = _num_asked(size)
    return asked * np.log2(1 + size.cohort / asked)


Terms = dict[str, Callable[[Size], Any]]
SHARD_TERMS: Terms = {
    "a shard that is asked": _num_asked,
    "a block of clients alike": _num_blocks,
    "a client": lambda size: size.cohort,
    "a client's param": lambda size: size.cohort * size.dim,
    "a client that is drawn": lambda size: size.cohort * size.is_drawn,
    "a client of the population, if drawn": lambda size: (
        size.population * _num_asked(size) * size.is_drawn
    ),
}
SERVER_TERMS: Terms = {
    "a round": lambda size: 1.0,
    "a shard that is asked": _num_asked,
    "a client": lambda size: size.cohort,
    "a client's param": lambda size: size.cohort * size.dim,
    "a pair's param": lambda size: size.is_pairwise * size.cohort**2 * size.dim,
    "a client's pairs with two others": lambda size: size.is_pairwise * size.cohort**3,
}


class Prices(NamedTuple):
    """CPU-seconds for one of each term."""

    shard: dict[str, float]
    server: dict[str, float]

    def shards(self, size: Size) -> Any:
        """CPU-seconds of all shards in a round."""
        return sum(price * SHARD_TERMS[name](size) for name, price in self.shard.items())

    def of_server(self, size: Size) -> Any:
        return sum(price * SERVER_TERMS[name](size) for name, price in self.server.items())

    def total(self, size: Size) -> Any:
        return self.shards(size) + self.of_server(size)


def fit(found: Mapping[Case, Cost]) -> Prices:
    sizes = [Size.of(case, cost) for case, cost in found.items()]
    return Prices(
        _fit(SHARD_TERMS, sizes, [cost.shard_cpu for cost in found.values()]),
        # Ray's own processes serve the calls, and are where the server is.
        _fit(SERVER_TERMS, sizes, [cost.server_cpu + cost.ray_cpu for cost in found.values()]),
    )


def _fit(terms: Terms, sizes: list[Size], measured: list[float]) -> dict[str, float]:
    target = np.array(measured)
    matrix = np.array([[term(size) for term in terms.values()] for size in sizes], np.float64)
    scale = matrix.max(axis=0)
    prices, _ = nnls(matrix / scale / target[:, None], np.ones(len(target)))
    return dict(zip(terms, (prices / scale).tolist(), strict=True))


def errors(prices: Prices, found: Mapping[Case, Cost]) -> dict[Case, float]:
    """Relative, of the CPU-seconds of a round, all processes together."""
    return {
        case: prices.total(Size.of(case, cost)) / measured_total(cost) - 1.0
        for case, cost in found.items()
    }


def measured_total(cost: Cost) -> float:
    return cost.server_cpu + cost.shard_cpu + cost.ray_cpu


def bytes_up(size: Size) -> Any:
    """Reports: the update, the loss, the path and the number of examples of each client."""
    return 4 * size.cohort * (size.dim + 3)


def words(prices: Prices, found: Mapping[Case, Cost], unseen: Mapping[Case, Cost]) -> str:
    """The prices, and how far the model is off."""
    lines = []
    for place, terms in (("shards", prices.shard), ("server", prices.server)):
        lines += [f"{place}: {price:.2e} CPU-s for {name}" for name, price in terms.items()]
    for title, cases in (("fitted", found), ("unseen", unseen)):
        off = errors(prices, cases)
        middle, most = np.median(np.abs([*off.values()])), np.max(np.abs([*off.values()]))
        lines.append(f"{title}: off by {middle:.0%} (median), {most:.0%} (most)")
    lines += [f"  {error:+.0%} {tuple(case)}" for case, error in errors(prices, unseen).items()]
    up = [bytes_up(Size.of(case, cost)) / cost.bytes_up - 1 for case, cost in unseen.items()]
    lines.append(f"bytes to the server: off by {np.max(np.abs(up)):.1%} at most")
    return "\n".join(lines)


class Parts(NamedTuple):
    """Seconds of a round on many nodes, one after the other."""

    training: Any
    network: Any
    server: Any


def on_paper(prices: Prices, cohort: Any, dim: float, *, is_pairwise: bool) -> Parts:
    """A round of a cohort out of a million clients, a shard on each of a thousand nodes."""
    size = Size(POPULATION, cohort, NODES, dim, is_pairwise, True)
    asked = _num_asked(size)
    moved = bytes_up(size) + asked * 4 * dim
    return Parts(prices.shards(size) / asked, LATENCY + moved / BANDWIDTH, prices.of_server(size))


def draw(
    prices: Prices, found: Mapping[Case, Cost], unseen: Mapping[Case, Cost], path: Path
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for title, cases, mark in (("fitted", found, "o"), ("unseen", unseen, "^")):
        measured = [measured_total(cost) for cost in cases.values()]
        predicted = [prices.total(Size.of(case, cost)) for case, cost in cases.items()]
        panels[0].loglog(measured, predicted, mark, label=title)
    ends = panels[0].get_xlim()
    panels[0].loglog(ends, ends, "k:", linewidth=1)
    labels = {"xlabel": "CPU-seconds a round, measured", "ylabel": "predicted"}
    panels[0].set(title="The model and what was measured", **labels)
    panels[0].legend()
    for panel, is_pairwise, title in zip(
        panels[1:], (False, True), ("mean of updates", "consensus"), strict=True
    ):
        cohorts = COHORTS[COHORTS <= 1e4] if is_pairwise else COHORTS  # hours, beyond
        parts = on_paper(prices, cohorts, WIDE, is_pairwise=is_pairwise)
        for name, seconds in parts._asdict().items():
            panel.loglog(cohorts, seconds, label=name)
        panel.set(title=f"On paper: 1,000 nodes, {title}", xlabel="cohort", ylabel="seconds")
        panel.legend()
    figure.savefig(path, dpi=90)
