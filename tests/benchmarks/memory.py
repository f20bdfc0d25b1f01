"""Does a long trial keep what it uses? `python -m tests.benchmarks.memory [--json FILE]`.

A small trial of thousands of rounds, in this process and on two shards: resident memory and open
files of every process, Ray's own included, and bytes in the object store, after a tenth of the
rounds and after all. The history of a trial is kept in memory and grows: about a kilobyte a round.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ray
from rich.console import Console
from rich.table import Table

from fedcome_ray import datasets
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.shards import LocalShards, Shards
from fedcome_ray.runtime.connection import SHARDS, connected
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.pool import ShardPool
from fedcome_ray.runtime.populations import share
from fedcome_ray.runtime.shards import RayShards
from fedcome_ray.trials.run import TrialRun
from tests.benchmarks.processes import Usage, usages

ROUNDS = 5_000
LAYOUTS = {"in process": 0, "two shards": 2}
MEGABYTE = 2**20


class Snapshot(NamedTuple):
    """What is held after so many rounds."""

    rounds: int
    processes: dict[int, Usage]
    object_store_bytes: int


def trial_of(rounds: int) -> Trial:
    return parse_trial(
        {
            "data": {"dataset": "digits", "num_clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "method": {"name": "scaffold"},
            "sampler": {"name": "similarity"},
            "cohort_size": 4,
            "rounds": rounds,
            "eval_every": 10,
        }
    )


@contextmanager
def shards_of(trial: Trial, population: Population, num_shards: int) -> Iterator[Shards]:
    """In this process if there are to be none."""
    if not num_shards:
        yield LocalShards(trial, population)
        return
    with connected(MachineOptions(), Console(stderr=True), SHARDS):
        pool = ShardPool(TrialPlace(num_shards, cpus_per_shard=0.5))
        yield RayShards(trial, share({"": population})[""], pool)


def measure(num_shards: int, rounds: int) -> list[Snapshot]:
    """After a tenth of the rounds and after all of them."""
    trial = trial_of(rounds)
    population = datasets.load(trial.data)
    with (
        tempfile.TemporaryDirectory() as folder,
        shards_of(trial, population, num_shards) as shards,
    ):
        run = TrialRun(trial, population, shards, Path(folder))
        return [snapshot_after(run, number) for number in (rounds // 10, rounds)]


def snapshot_after(run: TrialRun, rounds: int) -> Snapshot:
    while run.rounds_done < rounds:
        run.advance(10.0, pause_after=rounds)
    return Snapshot(rounds, usages(), object_store_bytes())


def object_store_bytes() -> int:
    if not ray.is_initialized():
        return 0
    name = "object_store_memory"
    return int(ray.cluster_resources()[name] - ray.available_resources()[name])


def table_of(layout: str, first: Snapshot, last: Snapshot) -> Table:
    table = Table(title=f"{layout}, after {first.rounds:,} and {last.rounds:,} rounds")
    table.add_column("process")
    for head in ("MB", "MB then", "files", "files then"):
        table.add_column(head, justify="right")
    for pid in first.processes | last.processes:
        before, after = first.processes.get(pid), last.processes.get(pid)
        table.add_row(
            next(one.name for one in (before, after) if one),
            *(f"{one.resident_bytes / MEGABYTE:.1f}" if one else "-" for one in (before, after)),
            *(str(one.open_files) if one else "-" for one in (before, after)),
        )
    stored = (first.object_store_bytes, last.object_store_bytes)
    table.add_row("object store", *(f"{size / MEGABYTE:.1f}" for size in stored), "", "")
    return table


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    processes = [one._asdict() for one in snapshot.processes.values()]
    return {**snapshot._asdict(), "processes": processes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="5,000 take some minutes")
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args()
    found = {layout: measure(number, options.rounds) for layout, number in LAYOUTS.items()}
    for layout, (first, last) in found.items():
        Console().print(table_of(layout, first, last))
    if options.json:
        content = {layout: [as_json(one) for one in both] for layout, both in found.items()}
        options.json.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main()
