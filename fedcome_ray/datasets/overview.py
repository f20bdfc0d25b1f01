"""How a population's labels are spread over its clients: in numbers and as a picture."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedcome_ray.datasets.dataset import DatasetSettings
from fedcome_ray.datasets.population import Indices, Split
from fedcome_ray.errors import DataError

MAX_CLIENTS_DRAWN = 200  # more would be thinner than a pixel


def label_counts(split: Split, num_classes: int) -> Indices:
    """Examples of each client and class, `[num_clients, num_classes]`."""
    num_clients = len(split.sizes)
    client = np.repeat(np.arange(num_clients), split.sizes)
    cell = client * num_classes + split.labels()
    cells = np.bincount(cell, minlength=num_clients * num_classes)
    return cells.reshape(num_clients, num_classes)


def heterogeneity(counts: Indices) -> float:
    """Mean total-variation distance from a client's distribution of labels to that of all.

    0 when all clients are alike; near 1 when each has classes of its own.
    """
    of_clients: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
    of_all = counts.sum(axis=0) / counts.sum()
    return float(np.abs(of_clients - of_all).sum(axis=1).mean() / 2)


def statistics(counts: Indices, test_sizes: Indices) -> dict[str, str]:
    """What distinguishes a partition, ready to be shown."""

    def spread(numbers: Indices) -> str:
        low, middle, high = (f"{value:g}" for value in np.percentile(numbers, (0, 50, 100)))
        return f"{low} … {middle} … {high}"

    return {
        "clients": f"{len(counts):,}",
        "training examples a client (least, median, most)": spread(counts.sum(axis=1)),
        "test examples a client": spread(test_sizes),
        "classes a client": spread((counts > 0).sum(axis=1)),
        "heterogeneity index (0 alike, 1 disjoint)": f"{heterogeneity(counts):.3f}",
    }


def largest_classes(counts: Indices, shown: int = 5) -> str:
    """The classes of one client with their examples, the largest first."""
    labels = np.argsort(-counts, kind="stable")[: (counts > 0).sum()]
    words = [f"{label}: {counts[label]}" for label in labels[:shown]]
    return ", ".join(words + ["…"] * (len(labels) > shown))


def title(config: DatasetSettings) -> str:
    """The dataset and its settings, on one line."""
    settings = config.model_dump(exclude={"dataset", "test_split", "seed"}, exclude_none=True)
    partition = settings.pop("partition", {})
    name = [partition.pop("name")] if partition else []
    words = [f"{key} {value}" for key, value in {**partition, **settings}.items()]
    return ", ".join([config.dataset, *name, *words])


def draw(counts: Indices, title: str, path: Path) -> None:
    """Clients from left to right, classes from top to bottom, dark where there are many."""
    shown = counts[:MAX_CLIENTS_DRAWN]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shown.T, cmap="Blues", aspect="auto", interpolation="nearest", vmin=0)
    figure.colorbar(image, label="training examples")
    beyond = "" if len(shown) == len(counts) else f" (the first {len(shown)} of {len(counts)})"
    axes.set(title=title, xlabel=f"client{beyond}", ylabel="class")
    try:
        figure.savefig(path, dpi=100)
    except (OSError, ValueError) as error:  # a folder that is not there, an unknown format
        raise DataError(f"cannot write {path}: {error}") from None
