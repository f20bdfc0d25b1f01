"""What populations, cohorts and shards cost: `python -m tests.benchmarks.scale [--quick]`.

Every case has a process and a private Ray of its own, so that its memory is its alone. The server
is apart from the shards, else its share of the CPU time could not be told from theirs, and calls
them, as it does where they are on nodes of their own. CPU-seconds
are of processes, by the system's count, and steadier on a busy machine than those of the clock,
which are shown for the start alone. Bytes are those of the arrays that are sent; memory is the most
that was resident, with the pages of the object store that a process has touched.

`--json FILE` keeps what was measured; `--plot PNG` draws the model of `scale_model`, fitted to it.
`--from FILE` measures nothing and takes a file that was kept.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedcome_ray import datasets, models
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.datasets.population import form_of
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics.arrays import to_arrays
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.runtime import lines
from fedcome_ray.runtime.connection import SHARDS, connected
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.shards import RayShards
from tests.benchmarks.processes import cpu_seconds_by_process, peak_bytes, usages

LEAST_CPU = 0.5  # seconds of rounds: the system counts in ticks of 10 ms
LEAST_ROUNDS = 3
MEGABYTE = 2**20
SHARD = "ray::ShardHost"


class Case(NamedTuple):
    """What is run."""

    population: int
    cohort: int
    shards: int
    hidden: int = 0  # neurons of the model's hidden layer; 0: a logistic regression
    method: str = "fedavg"
    evaluates: bool = False

    @property
    def trial(self) -> Trial:
        data = {"dataset": "synthetic", "num_clients": self.population, "examples_per_client": 20}
        wide = {"name": "mlp", "hidden": [self.hidden]}
        return parse_trial(
            {
                "data": data,
                "model": wide if self.hidden else {"name": "logistic"},
                "method": {"name": self.method},
                "local": {"epochs": 1, "batch_size": 10, "lr": 0.05},
                "cohort_size": self.cohort,
            }
        )


class Cost(NamedTuple):
    """Of a round, but for what is said to be of the start."""

    dim: int
    rounds: int
    start_seconds: float  # of the clock, from the settings to shards that are ready
    start_cpu: float
    server_cpu: float
    shard_cpu: float  # of all shards
    ray_cpu: float  # of Ray's own processes
    bytes_down: float  # of all messages to shards
    bytes_up: float
    server_peak: int  # bytes resident, most at any time
    shard_peak: int  # of the largest
    evaluation_cpu: float | None  # of all processes, of an evaluation of every client, where asked


class CountingShards(RayShards):
    """Notes what is sent to actors, and what comes back."""

    bytes_down = bytes_up = 0

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Report:
        report = super().train(received, cohort, round_index)
        asked = sum(1 for part in self._shares(cohort) if part)
        self.bytes_down += asked * len(pickle.dumps(to_arrays(received), protocol=5))
        self.bytes_up += sum(field.nbytes for field in report.fields())
        return report


def measure(case: Case) -> Cost:
    """In this process, which should have done nothing else."""
    prepare_process()
    lines.IS_POSSIBLE = False
    with connected(MachineOptions(), Console(stderr=True, quiet=True), SHARDS):
        pool = ShardPool(TrialPlace(case.shards, cpus_per_shard=1.0 / case.shards))
        pool.replace_dead()
        begin, before = time.perf_counter(), cpu_seconds_by_process()
        trial = case.trial
        shards = CountingShards(trial, share({"": datasets.load(trial.data)})[""], pool)
        start_seconds = time.perf_counter() - begin
        start_cpu = sum(cpu_since(before).values())
        population = shards.population
        model = models.build(trial.model, *form_of(population))
        server = Server(trial, model.init(trial.seed), population.num_clients)
        run_round(server, shards, evaluate=False)
        shards.bytes_down = shards.bytes_up = 0
        ticks, rounds, begin = cpu_seconds_by_process(), 0, time.process_time()
        while rounds < LEAST_ROUNDS or time.process_time() - begin < LEAST_CPU:
            run_round(server, shards, evaluate=False)
            rounds += 1
        after, held = cpu_seconds_by_process(), usages()
        spent = {pid: (after[pid] - ticks.get(pid, 0.0)) / rounds for pid in after}
        of_shards = [pid for pid, one in held.items() if one.command.startswith(SHARD)]
        own = spent.pop(os.getpid())
        peaks = peak_bytes(os.getpid()), max(map(peak_bytes, of_shards))
        shard_cpu = sum(spent[pid] for pid in of_shards)
        evaluation = None
        if case.evaluates:
            shards.evaluate(server.params)
            evaluation = sum(cpu_since(after).values())
        return Cost(
            dim=model.dim,
            rounds=rounds,
            start_seconds=start_seconds,
            start_cpu=start_cpu,
            server_cpu=own,
            shard_cpu=shard_cpu,
            ray_cpu=sum(spent.values()) - shard_cpu,
            bytes_down=shards.bytes_down / rounds,
            bytes_up=shards.bytes_up / rounds,
            server_peak=peaks[0],
            shard_peak=peaks[1],
            evaluation_cpu=evaluation,
        )


def cpu_since(before: dict[int, float]) -> dict[int, float]:
    """CPU-seconds of each process that has not ended."""
    return {pid: now - before.get(pid, 0.0) for pid, now in cpu_seconds_by_process().items()}


CASES = [
    *(Case(number, 10, 2) for number in (1_000, 10_000, 100_000, 1_000_000)),
    *(Case(number, 100, 2, evaluates=True) for number in (1_000, 10_000, 100_000, 1_000_000)),
    *(Case(10_000, cohort, 1) for cohort in (10, 1_000)),
    *(Case(10_000, cohort, 8) for cohort in (10, 1_000)),
    *(Case(10_000, 100, shards, 100) for shards in (1, 4, 8)),
    *(Case(10_000, cohort, 2, 1_000) for cohort in (10, 100)),
    *(Case(10_000, 1_000, shards, 1_000) for shards in (2, 8)),
    *(Case(10_000, cohort, 2, 0, "fedcome") for cohort in (10, 100, 300)),
    *(Case(10_000, cohort, 2, 1_000, "fedcome") for cohort in (100, 300)),
]
UNSEEN = [
    Case(1_000_000, 1_000, 4),
    Case(300_000, 300, 2),
    Case(10_000, 300, 6, 100),
    Case(10_000, 300, 3, 1_000),
    Case(10_000, 1_000, 4, 300),
    Case(10_000, 200, 4, 300, "fedcome"),
]
"""Of none of which the model knows when it is fitted."""
QUICK = [Case(number, 100, 2, evaluates=True) for number in (1_000, 10_000, 1_000_000)]


def measured_apart(case: Case) -> Cost:
    """In a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.scale", "--one", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def table_of(found: dict[Case, Cost]) -> Table:
    table = Table(title="synthetic clients, a round without evaluation; CPU time in ms")
    heads = ("population", "cohort", "shards", "params", "method", "server", "shards", "Ray's own")
    rest = ("MB down", "MB up", "server MB", "shard MB", "start, CPU s", "s", "evaluation, CPU s")
    for head in (*heads, *rest):
        table.add_column(head, justify="right")
    for case, cost in found.items():
        evaluation = "" if cost.evaluation_cpu is None else f"{cost.evaluation_cpu:.2f}"
        table.add_row(
            f"{case.population:,}",
            f"{case.cohort:,}",
            str(case.shards),
            f"{cost.dim:,}",
            case.method,
            *(f"{1e3 * cpu:.1f}" for cpu in (cost.server_cpu, cost.shard_cpu, cost.ray_cpu)),
            *(f"{sent / MEGABYTE:.2f}" for sent in (cost.bytes_down, cost.bytes_up)),
            *(f"{peak / MEGABYTE:.0f}" for peak in (cost.server_peak, cost.shard_peak)),
            f"{cost.start_cpu:.1f}",
            f"{cost.start_seconds:.1f}",
            evaluation,
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three populations, no model")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--from", dest="kept", type=Path, help="results that were written before")
    parser.add_argument("--plot", type=Path, help="where to draw the model, as PNG")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Case(*json.loads(options.one)))._asdict()))
        return
    if options.kept:
        kept = json.loads(options.kept.read_text())
        found = {Case(*one["case"]): Cost(**one["cost"]) for one in kept}
    else:
        cases = QUICK if options.quick else [*CASES, *UNSEEN]
        found = {case: measured_apart(case) for case in track(cases, console=Console(stderr=True))}
    if options.json:
        content = [{"case": case, "cost": cost._asdict()} for case, cost in found.items()]
        options.json.write_text(json.dumps(content, indent=2))
    Console(width=200).print(table_of(found))
    if not options.quick:
        from tests.benchmarks import scale_model  # which imports this

        fitted = {case: found[case] for case in CASES}
        model = scale_model.fit(fitted)
        unseen = {case: found[case] for case in UNSEEN}
        Console(width=120).print(scale_model.words(model, fitted, unseen))
        if options.plot:
            scale_model.draw(model, fitted, unseen, options.plot)


if __name__ == "__main__":
    main()
