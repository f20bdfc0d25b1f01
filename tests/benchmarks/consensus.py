"""How long consensus and sampling take, beside the alternatives, in one run on one machine.

    python -m tests.benchmarks.consensus [--quick] [--json PATH]

Updates come from local training on handwritten digits, two classes for each client, of a network
as wide as needed. Local training, for comparison, is that of the paper's networks with about as
many params (MNIST, CIFAR-10). Times are medians; `~` marks those extrapolated from some clients.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import optimize, sparse
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torchjd import aggregation
from torchjd.linalg import QuadprogProjector

from fedcome_ray import samplers
from fedcome_ray.consensus import agreement as consensus
from fedcome_ray.methods.method import Report
from fedcome_ray.numerics import geometry
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.samplers import table as similarity
from fedcome_ray.samplers import uniform

try:
    import cvxopt
except ImportError:
    cvxopt = None

LOCAL_STEPS, BATCH_SIZE = 10, 50
SMALL, LARGE = 50_890, 918_090  # params of the paper's networks for MNIST and CIFAR-10
PATIENCE = 10.0  # seconds given to an alternative before it is extrapolated


@dataclass(frozen=True)
class Timing:
    seconds: float
    is_extrapolated: bool = False

    def __str__(self) -> str:
        return f"{'~' if self.is_extrapolated else ''}{_duration(self.seconds)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cohorts, about two minutes")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    prepare_process()
    console = Console()
    if cvxopt is None:
        console.print("cvxopt is not installed: the authors' formulation is left out")

    cohorts = [10, 20, 40, 100] if arguments.quick else [10, 20, 40, 100, 196, 500]
    large = [100] if arguments.quick else cohorts
    num_rounds = 50 if arguments.quick else 500
    steps = [(size, SMALL) for size in cohorts] + [(size, LARGE) for size in large]
    tables = {
        "All problems of a cohort, Gram matrix given; in brackets the direction's error": (
            solve_row(size) for size in cohorts
        ),
        "A round of the similarity sampler, cohorts of 100 (20 of 100)": (
            sampler_row(population, num_rounds) for population in (100, 10_000, 100_000)
        ),
        "The whole consensus step, beside local training and the authors' formulation": (
            step_row(size, dim) for size, dim in steps
        ),
        "The same map by TorchJD's UPGrad; in brackets how far its direction is from ours": (
            upgrad_row(size, dim) for size, dim in steps
        ),
    }
    rows = {}
    for title, measured in tables.items():
        rows[title] = list(measured)
        console.print(_table(title, rows[title]))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2, default=lambda timing: timing.seconds))


def solve_row(size: int) -> dict[str, Any]:
    updates = train(size, SMALL)
    gram = geometry.gram_matrix(updates)
    cosines, norms = geometry.normalise(gram)
    factor = geometry.triangular_factor(updates, norms)
    exact = direction_in(factor, norms, [_nnls(factor, client) for client in range(size)])

    def error(multipliers: list[np.ndarray]) -> str:
        found = direction_in(factor, norms, multipliers)
        return f"({np.linalg.norm(found - exact) / np.linalg.norm(exact):.0e})"

    row: dict[str, Any] = {"cohort": size}
    for solver in ("active_set", "osqp"):
        agreements = [consensus.agree(updates, gram=gram, solver=solver) for _ in range(4)]
        seconds = statistics.median(each.info["solve_seconds"] for each in agreements[1:])
        mixing = agreements[0].mixing.numpy() - np.eye(size)
        row[solver] = f"{_duration(seconds)} {error(list(mixing * norms / norms[:, None]))}"
    extents, axes = np.linalg.eigh(cosines)
    root = np.sqrt(np.maximum(extents, 0.0))[:, None] * axes.T
    for name, solve in (
        ("scipy NNLS", lambda client: _nnls(root, client)),
        ("OSQP, one object each", lambda client: _cold_osqp(cosines, client)),
    ):
        timing, multipliers = measure_clients(solve, size)
        row[name] = str(timing) + ("" if timing.is_extrapolated else f" {error(multipliers)}")
    return row


def step_row(size: int, dim: int) -> dict[str, Any]:
    updates = train(size, dim)
    training, _ = measure_clients(local_training(dim), size)
    gram_time, gram = measure(lambda: geometry.gram_matrix(updates))
    step_time, agreement = measure(lambda: consensus.agree(updates, gram=gram))
    total = gram_time.seconds + step_time.seconds
    row: dict[str, Any] = {
        "cohort": size,
        "dim": updates.shape[1],
        "conflicts": f"{agreement.info['conflicts/before']}->{agreement.info['conflicts/after']}",
        "Gram": gram_time,
        "solve": Timing(agreement.info["solve_seconds"]),
        "whole step": Timing(total),
        "local training": training,
        "share": f"{total / training.seconds:.1%}",
    }
    if cvxopt is not None:
        vectors = updates.double().numpy()
        authors, _ = measure_clients(lambda client: _authors_qp(vectors, client), size)
        row |= {"authors'": authors, "times faster": f"{authors.seconds / total:.0f}"}
    return row


def upgrad_row(size: int, dim: int) -> dict[str, Any]:
    """As it comes, in float32 and regularised, and as exact as ours."""
    updates = train(size, dim)
    ours, agreement = measure(lambda: consensus.agree(updates))
    row: dict[str, Any] = {"cohort": size, "dim": updates.shape[1], "ours": ours}
    direction = agreement.direction
    exactly = QuadprogProjector(norm_eps=1e-12, reg_eps=1e-12)
    for name, aggregator, given in (
        ("UPGrad", aggregation.UPGrad(), updates),
        ("UPGrad, float64", aggregation.UPGrad(projector=exactly), updates.double()),
    ):
        timing, found = measure(partial(aggregator, given))
        error = (found - direction).norm() / direction.norm()
        row[name] = f"{timing} ({error:.0e})"
    return row


def sampler_row(population: int, num_rounds: int) -> dict[str, Any]:
    size = min(100, population // 5)
    sampler = samplers.build(samplers.SimilaritySampler())
    table = sampler.init(population)
    for round_index in range(num_rounds):
        rng = np.random.default_rng(round_index)
        cohort = samplers.build(samplers.RandomSampler()).sample(
            uniform.Size(population), size, rng
        )
        report = _random_report(size, rng)
        table = sampler.learn(table, cohort, report)
    sampling, cohort = measure(lambda: sampler.sample(table, size, np.random.default_rng(0)))
    learning, _ = measure(lambda: sampler.learn(table, cohort, report))
    plain, _ = measure(lambda: _plain_annealing(table, int(0.7 * size), np.random.default_rng(0)))
    arrays = [field.nbytes for field in table if isinstance(field, np.ndarray)]
    return {
        "population": population,
        "rounds before": num_rounds,
        "sample": sampling,
        "learn": learning,
        "memory": f"{sum(arrays) / 1e6:.1f} MB",
        "sample, O(cohort²) a move": plain,
    }


def train(num_clients: int, dim: int) -> Tensor:
    """Updates of clients with two classes each, all from the same params."""
    images, labels = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    images, labels = images.float() / 16, labels.long()
    generator = torch.Generator().manual_seed(num_clients)
    hidden = (dim - 10) // 75  # 64-hidden-10 has 75 hidden + 10 params
    received = [
        torch.randn(shape, generator=generator) * shape[0] ** -0.5
        for shape in ((64, hidden), (1, hidden), (hidden, 10), (1, 10))
    ]
    updates = torch.empty((num_clients, 75 * hidden + 10))
    for client in range(num_clients):
        classes = torch.tensor([client % 10, (client // 10 + client + 1) % 10])
        own = torch.isin(labels, classes).nonzero().squeeze(1)
        params = [part.clone().requires_grad_() for part in received]
        for _ in range(LOCAL_STEPS):
            batch = own[torch.randint(len(own), (BATCH_SIZE,), generator=generator)]
            scores = (images[batch] @ params[0] + params[1]).relu() @ params[2] + params[3]
            loss = nn.functional.cross_entropy(scores, labels[batch])
            for part, gradient in zip(params, torch.autograd.grad(loss, params), strict=True):
                part.data.sub_(gradient, alpha=0.05)
        torch.cat(
            [(after.data - before).ravel() for after, before in zip(params, received, strict=True)],
            out=updates[client],
        )
    return updates


def local_training(dim: int) -> Callable[[int], None]:
    """A round of one client with the paper's network of this size; the data do not matter."""
    network, inputs = {SMALL: _mnist_network, LARGE: _cifar_network}[dim]()
    assert sum(part.numel() for part in network.parameters()) == dim
    labels = torch.zeros(BATCH_SIZE, dtype=torch.long)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)

    def round_of(_client: int) -> None:
        for _ in range(LOCAL_STEPS):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), labels).backward()
            optimiser.step()

    return round_of


def _mnist_network() -> tuple[nn.Module, Tensor]:
    network = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    return network, torch.rand(BATCH_SIZE, 784)


def _cifar_network() -> tuple[nn.Module, Tensor]:
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10)),
    )
    return network, torch.rand(BATCH_SIZE, 3, 32, 32)


def direction_in(
    factor: np.ndarray, norms: np.ndarray, multipliers: list[np.ndarray]
) -> np.ndarray:
    """The uniform mean of the agreed updates, in the coordinates of the factor."""
    return factor @ ((np.eye(len(norms)) + np.array(multipliers)) * norms[:, None]).mean(axis=0)


def _nnls(factor: np.ndarray, client: int) -> np.ndarray:
    return optimize.nnls(factor, -factor[:, client])[0]


def _cold_osqp(cosines: np.ndarray, client: int) -> np.ndarray:
    import osqp

    size = len(cosines)
    problem = osqp.OSQP()
    problem.setup(
        P=sparse.csc_matrix(np.triu(cosines)),
        q=cosines[client],
        A=sparse.eye(size, format="csc"),
        l=np.zeros(size),
        u=np.full(size, np.inf),
        eps_abs=1e-8,
        eps_rel=1e-8,
        max_iter=100_000,
        verbose=False,
    )
    return problem.solve(raise_error=False).x


def _authors_qp(vectors: np.ndarray, client: int) -> None:
    gram = vectors @ vectors.T  # again for each client, as in their code
    cvxopt.solvers.qp(
        cvxopt.matrix(2 * gram),
        cvxopt.matrix(-2 * gram[client]),
        cvxopt.matrix(-gram),
        cvxopt.matrix(np.zeros(len(gram))),
        options={"show_progress": False},
    )


def _plain_annealing(table: similarity.Table, size: int, rng: np.random.Generator) -> np.ndarray:
    """One-swap annealing that sums the whole energy anew for each of 600 proposals."""
    pool = rng.choice(table.num_clients, min(table.num_clients, size + 600), replace=False)
    values = similarity.among(table, pool)
    subset, energy, temperature = np.arange(size), np.inf, 1.0
    best, best_energy = subset, np.inf
    for _ in range(600):
        proposal = subset.copy()
        proposal[rng.integers(size)] = rng.choice(np.setdiff1d(np.arange(len(pool)), subset))
        new_energy = values[np.ix_(proposal, proposal)].sum()
        if new_energy <= energy or rng.random() < np.exp((energy - new_energy) / temperature):
            subset, energy = proposal, new_energy
            if energy < best_energy:
                best, best_energy = subset, energy
        temperature *= 1e-3 ** (1 / 600)
    return pool[best]


def _random_report(size: int, rng: np.random.Generator) -> Report:
    ones = torch.ones((size, 1))
    report = Report(torch.from_numpy(rng.standard_normal((size, 20))), ones, ones, ones)
    assert report.gram is not None  # computed here: consensus needs it anyway
    return report


def measure(function: Callable[[], Any], repeats: int = 3) -> tuple[Timing, Any]:
    result = function()  # compilation and cold caches are not counted
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - started)
    return Timing(statistics.median(seconds)), result


def measure_clients(solve: Callable[[int], Any], size: int) -> tuple[Timing, list[Any]]:
    """The time of one solve for each client, extrapolated when patience is at its end."""
    results: list[Any] = []
    started = time.perf_counter()
    while len(results) < size and time.perf_counter() - started < PATIENCE:
        results.append(solve(len(results)))
    seconds = (time.perf_counter() - started) * size / len(results)
    return Timing(seconds, is_extrapolated=len(results) < size), results


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 0, 0, 1))
    for column in rows[0]:
        table.add_column(
            column.replace(" ", "\n"), justify="right", vertical="bottom", no_wrap=True
        )
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    main()
