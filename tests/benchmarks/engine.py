"""How fast clients train: `python -m tests.benchmarks.engine [--quick] [--json FILE] [--plot PNG]`.

One thread per process throughout. Variants take turns, so that a busy machine is unfair to all of
them alike, and the median of several turns counts. CPU-seconds are steadier than wall time; those
of the Ray variant are of all its processes, Ray's own included. Speeds are told as shares of the
fastest matrix products: large squares of PyTorch's library, and those that train the MLP.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from fedcome_ray import datasets, models
from fedcome_ray.clients.rehearsal import first_message
from fedcome_ray.clients.shard import Shard
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.methods import REGISTRY
from fedcome_ray.methods.method import OnlyParams
from fedcome_ray.models.dense import Dense
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.runtime.connection import SHARDS, connected
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.shards import RayShards
from tests.benchmarks.peers import examples, ours
from tests.benchmarks.peers.task import WORKLOADS
from tests.benchmarks.processes import cpu_seconds, resident_bytes
from tests.benchmarks.workloads import (
    CIFAR10,
    FEMNIST,
    MNIST,
    Workload,
    dataloader_loop,
    library_products,
    products,
    tuned_loop,
)

NUM_SHARDS = 2
POPULATIONS = (1_000, 10_000, 100_000)
CORRECTED = ("fedavg", "fedprox", "scaffold", "feddyn", "feddc")
VARIANTS = {
    "products": "its matrix products alone",
    "library": "the same by PyTorch",
    "engine": "engine, in process",
    "ray": f"engine, {NUM_SHARDS} Ray shards",
    "tuned": "tuned PyTorch loop",
    "dataloader": "DataLoader loop",
}
# The fastest products that are known: some libraries leave out what some processors have.
PEAKS = {"library": "of PyTorch's", "tiles": "of our products"}


class Cost(NamedTuple):
    """Of a round."""

    cpu: float
    wall: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer clients and turns, 4 minutes")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--plot", type=Path, help="where to draw them, as PNG")
    options = parser.parse_args()

    prepare_process()
    workloads = [MNIST, FEMNIST, CIFAR10]
    if options.quick:
        workloads = [MNIST, replace(FEMNIST, cohort_size=16), replace(CIFAR10, cohort_size=2)]
    with connected(MachineOptions(), Console(stderr=True), SHARDS):
        pool = ShardPool(TrialPlace(NUM_SHARDS, cpus_per_shard=1.0, is_joint=True))
        scaling = {str(num): measure_population(num, pool) for num in POPULATIONS}
        print_scaling(scaling)
        trial, population, source = examples_of_peers()
        rounds = measure_rounds(trial, population, pool, turns=5 if options.quick else 9)
        rounds["examples"] = source
        print_rounds(rounds)
        results = {w.name: measure(w, pool, turns=3 if options.quick else 5) for w in workloads}
        for name, result in results.items():
            print_result(name, result)
    turns = 5 if options.quick else 9
    corrected = {
        source: measure_methods(trial, population, turns),
        "noise": measure_methods(MNIST.trial, MNIST.population, turns),
    }
    print_methods(corrected)
    if options.json:
        found = {**results, "rounds": rounds, "population": scaling, "corrected": corrected}
        options.json.write_text(json.dumps(found, indent=2))
    if options.plot:
        draw(results, options.plot)


def measure(workload: Workload, pool: ShardPool, turns: int) -> dict[str, Any]:
    """Costs of a round of each variant, and what follows from them."""
    received, step = OnlyParams(workload.start), workload.num_clients // workload.cohort_size
    cohort = tuple(range(0, workload.cohort_size * step, step))  # half of it in each shard
    shard = Shard(workload.trial, workload.population)
    shards = RayShards(workload.trial, share({"all": workload.population})["all"], pool)
    variants: dict[str, Callable[[], object]] = {
        "engine": lambda: shard.train(received, cohort, 0),
        "ray": lambda: shards.train(received, cohort, 0),
        "tuned": lambda: tuned_loop(workload),
        "dataloader": lambda: dataloader_loop(workload),
    }
    if isinstance(shard.model, Dense):
        alone = {"products": products(workload), "library": library_products(workload)}
        variants = {**alone, **variants}
    shard.train(received, cohort[:1], 0)
    shards.train(received, (cohort[0], cohort[-1]), 0)
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    peaks: dict[str, list[float]] = {name: [] for name in PEAKS}
    tiles = products(MNIST)
    for _ in range(turns):
        peaks["library"].append(library_peak())
        peaks["tiles"].append(MNIST.gigaflops / cost_of(tiles, time.process_time, 0.2).cpu)
        for name, variant in variants.items():
            clock = cpu_seconds if name == "ray" else time.process_time
            costs[name].append(cost_of(variant, clock))
    return summarise(workload, costs, {name: max(found) for name, found in peaks.items()})


def cost_of(
    variant: Callable[[], object], clock: Callable[[], float], least_seconds: float = 1.0
) -> Cost:
    """Of one run; short ones are repeated, for the system counts CPU time in ticks of 10 ms."""
    runs, cpu, begin = 0, clock(), time.perf_counter()
    while runs == 0 or time.perf_counter() - begin < least_seconds:
        variant()
        runs += 1
    wall = time.perf_counter() - begin
    return Cost((clock() - cpu) / runs, wall / runs)


def library_peak(size: int = 1024, repeats: int = 10) -> float:
    """GFLOP/s per CPU-second of the best of some square products."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        a @ b
        times.append(time.process_time() - begin)
    return 2 * size**3 / min(times) / 1e9


def summarise(
    workload: Workload, costs: dict[str, list[Cost]], peaks: dict[str, float]
) -> dict[str, Any]:
    cpu = {name: median(cost.cpu for cost in turns) for name, turns in costs.items()}
    wall = {name: median(cost.wall for cost in turns) for name, turns in costs.items()}
    speed = {name: workload.gigaflops / seconds for name, seconds in cpu.items()}
    return {
        "cohort_size": workload.cohort_size,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "cpu_ratio_dataloader": cpu["dataloader"] / cpu["engine"],
        "cpu_ratio_tuned": cpu["tuned"] / cpu["engine"],
        "ray_fraction": cpu["engine"] / cpu["ray"],
        "gigaflops_per_second": speed,
        "peak_gigaflops_per_second": peaks,
        "peak_fraction": {name: speed["engine"] / peak for name, peak in peaks.items()},
    }


def print_result(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}: a round of {result['cohort_size']} clients")
    peaks = result["peak_gigaflops_per_second"]
    titles = "".join(f"{title:>17}" for title in PEAKS.values())
    print(f"{'':28}{'CPU s':>9}{'wall s':>9}{'ratio':>8}{'GFLOP/s':>9}{titles}")
    for variant, title in VARIANTS.items():
        if variant not in result["cpu_seconds"]:
            continue
        cpu, speed = result["cpu_seconds"][variant], result["gigaflops_per_second"][variant]
        print(
            f"{title:28}{cpu:9.3f}{result['wall_seconds'][variant]:9.3f}"
            f"{cpu / result['cpu_seconds']['engine']:8.2f}{speed:9.1f}"
            + "".join(f"{speed / peaks[name]:17.0%}" for name in PEAKS)
        )


def measure_methods(trial: Trial, population: Population, turns: int) -> dict[str, float]:
    """CPU-seconds of local training by methods that correct gradients, and by one that does not."""
    shards = {
        name: Shard(trial.model_copy(update={"method": REGISTRY[name].config()}), population)
        for name in CORRECTED
    }
    num = population.num_clients
    messages = {name: first_message(shard, num) for name, shard in shards.items()}
    everybody, costs = tuple(range(num)), {name: [] for name in CORRECTED}
    for turn in range(turns + 1):
        for name, shard in shards.items():
            train = partial(shard.train, messages[name], everybody, turn)
            costs[name].append(cost_of(train, time.process_time).cpu)
    # Not the first, before which no client has a state.
    return {name: median(found[1:]) for name, found in costs.items()}


def print_methods(corrected: dict[str, dict[str, float]]) -> None:
    print("\nlocal training, MLP, 100 clients x 600")
    print(f"{'':28}" + "".join(f"{'CPU s, ' + where:>24}{'ratio':>8}" for where in corrected))
    for name in CORRECTED:
        costs = [(own[name], own[name] / own["fedavg"]) for own in corrected.values()]
        print(f"{name:28}" + "".join(f"{cpu:24.3f}{ratio:8.2f}" for cpu, ratio in costs))


def examples_of_peers() -> tuple[Trial, Population, str]:
    """What peers are compared on, and the source of its examples."""
    with tempfile.TemporaryDirectory() as folder:
        path, source = examples.write(WORKLOADS["mnist_full"], Path(folder))
        trial = ours.trial_of(WORKLOADS["mnist_full"], path)
        return trial, datasets.load(trial.data), source


def measure_rounds(
    trial: Trial, population: Population, pool: ShardPool, turns: int
) -> dict[str, Any]:
    """Costs of whole rounds, with evaluation."""
    shards: dict[str, Shards] = {
        "engine": LocalShards(trial, population),
        "ray": RayShards(trial, share({"all": population})["all"], pool),
    }
    model = models.build(trial.model, population.feature_shape, population.num_classes)
    start = model.init(trial.seed)
    servers = {name: Server(trial, start, population.num_clients) for name in shards}
    costs: dict[str, list[Cost]] = {name: [] for name in shards}
    for _ in range(turns + 1):
        for name, server in servers.items():
            clock = cpu_seconds if name == "ray" else time.process_time
            costs[name].append(cost_of(partial(run_round, server, shards[name]), clock))
    return {
        # Not the first turn, in which memory is touched for the first time.
        "cpu_seconds": {name: median(one.cpu for one in own[1:]) for name, own in costs.items()},
        "wall_seconds": {name: median(one.wall for one in own[1:]) for name, own in costs.items()},
    }


def print_rounds(rounds: dict[str, Any]) -> None:
    cpu, wall = rounds["cpu_seconds"], rounds["wall_seconds"]
    print(f"\nwhole rounds with evaluation, MLP, 100 clients x 600 of {rounds['examples']}")
    print(f"{'':28}{'CPU s':>9}{'wall s':>9}{'CPU':>8}{'speed':>9}")
    for name in cpu:
        ratios = f"{cpu[name] / cpu['engine']:8.2f}{wall['engine'] / wall[name]:9.2f}"
        print(f"{VARIANTS[name]:28}{cpu[name]:9.3f}{wall[name]:9.3f}{ratios}")


def measure_population(num_clients: int, pool: ShardPool, rounds: int = 10) -> dict[str, float]:
    """Cost of a round, without evaluation, of 100 clients out of so many, and memory in it."""
    data = {"dataset": "synthetic", "num_clients": num_clients}
    trial = Trial.model_validate({"data": data, "model": {"name": "logistic"}, "cohort_size": 100})
    # Not kept in this process: from here on the population is in shared memory, once.
    shards = RayShards(trial, share({"all": datasets.load(trial.data)})["all"], pool)
    population = shards.population
    model = models.build(trial.model, population.feature_shape, population.num_classes)
    server = Server(trial, model.init(trial.seed), num_clients)
    run_round(server, shards, evaluate=False)
    memory = []

    def some_rounds() -> None:
        for _ in range(rounds):
            run_round(server, shards, evaluate=False)
        memory.append(resident_bytes())

    cost = cost_of(some_rounds, cpu_seconds)
    return {
        "cpu_seconds": cost.cpu / rounds,
        "wall_seconds": cost.wall / rounds,
        "resident_gigabytes": max(memory) / 2**30,
    }


def print_scaling(scaling: dict[str, dict[str, float]]) -> None:
    print("\nsynthetic, 100 clients a round, in two Ray shards")
    print(f"{'population':>12}{'CPU ms':>10}{'wall ms':>10}{'resident GB, all processes':>28}")
    for num, result in scaling.items():
        cpu, wall = 1e3 * result["cpu_seconds"], 1e3 * result["wall_seconds"]
        print(f"{int(num):12,}{cpu:10.1f}{wall:10.1f}{result['resident_gigabytes']:28.2f}")


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(results), figsize=(4 * len(results), 3.2))
    for panel, (name, result) in zip(np.atleast_1d(panels), results.items(), strict=True):
        found = result["cpu_seconds"]
        cpu = {variant: found.get(variant, np.nan) for variant in VARIANTS}
        colours = ["C2", "C2", "C0", "C0", "C7", "C7"]
        bars = panel.barh(list(VARIANTS.values()), list(cpu.values()), color=colours)
        labels = [f"{c:.2f} s, {c / cpu['engine']:.2f}x" if c == c else "" for c in cpu.values()]
        panel.bar_label(bars, labels, padding=3)
        panel.set(title=name, xlabel="CPU-seconds per round", xlim=(0, 1.45 * max(found.values())))
        panel.invert_yaxis()
        panel.label_outer()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
