"""What a command costs beside its rounds: `python -m tests.benchmarks.start [--json FILE]`.

Seconds from the shell to the end of the first round, seconds of `--help`, memory of all processes
of a trial on two shards, and what many small trials spend outside of their rounds (Linux only).
Wall time throughout, so on a machine that does nothing else; its load is told with the results.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

from fedcome_ray.__main__ import COMMANDS
from fedcome_ray.federation.round import Round
from fedcome_ray.metrics import SECONDS_ROUND
from fedcome_ray.trials.folder import read_rounds
from tests.benchmarks.peers import examples
from tests.benchmarks.peers.task import WORKLOADS
from tests.benchmarks.processes import usages

STARTS = {
    "run": ("run", "--set", "rounds=2"),
    "run --num-shards 2": ("run", "--set", "rounds=2", "--num-shards", "2"),
    "tune": ("tune", "--set", "rounds=2", "--axis", "seed=0,1"),
}
SHARDED = ("run", "--num-shards", "2", "--set", "model.name=mlp", "--set", "rounds=100000")
NUM_TRIALS, NUM_ROUNDS = 40, 20
OUTSIDE = "launch/seconds_outside_rounds_per_trial"  # what a launch tells MLflow
ROLES = {  # by a part of the command line
    "ray::ShardHost": "second shard",
    "ray::IDLE": "workers that nobody uses",
    "gcs_server": "Ray's GCS",
    "raylet": "Ray's raylet",
    "runtime/idle.py": "what stands in for Ray's agents",
    "tracking.apart": "MLflow",
    "fedcome_ray.run": "server and first shard",
}
PATIENCE_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="of which the median is taken")
    parser.add_argument("--json", type=Path, help="where to write the results")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    results = {
        "first_round_seconds": {
            name: _median(args.repetitions, lambda words=words: first_round(*words))
            for name, words in STARTS.items()
        },
        "help_seconds": {
            name: _median(args.repetitions, lambda name=name: help_of(name)) for name in COMMANDS
        },
        "resident_megabytes": memory(),
        "many_trials": many_trials(),
        "load_before": load,
    }
    print_results(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


def _median(repetitions: int, measure: Callable[[], float]) -> float:
    return median(measure() for _ in range(repetitions))


def first_round(*words: str) -> float:
    """Seconds from the start of a command to the end of its first round."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        _call(*words, "--output", folder)
        return min(rounds[1].time for rounds in _histories(folder)) - start


def help_of(command: str) -> float:
    start = time.monotonic()
    _call(command, "--help")
    return time.monotonic() - start


def memory() -> dict[str, float]:
    """Of every process of a trial on two shards, by what it is for, while rounds are run.

    On the examples that peers are compared on: those of MNIST, or as many of their shape.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, _ = examples.write(WORKLOADS["mnist_full"], Path(folder))
        command = _command(*SHARDED, "--set", f"data.dataset=npz:{path}", "--output", folder)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            end = time.monotonic() + PATIENCE_SECONDS
            while not any(len(rounds) > 20 for rounds in _histories(folder)):
                assert run.poll() is None, "the trial did not start"
                assert time.monotonic() < end, "no rounds in two minutes"
                time.sleep(0.5)
            time.sleep(12)  # until workers that nobody uses are gone, and MLflow is there
            found = usages(run.pid).values()
            run.send_signal(signal.SIGINT)
    roles: dict[str, float] = {}
    for used in found:
        role = next((role for part, role in ROLES.items() if part in used.command), used.name)
        roles[role] = roles.get(role, 0.0) + used.proportional_bytes / 2**20
    return roles


def many_trials() -> dict[str, float]:
    """Small trials as those of the quick grids, as many at once as there are processors."""
    seeds = ",".join(map(str, range(NUM_TRIALS)))
    with tempfile.TemporaryDirectory() as folder:
        settings = ("--set", f"rounds={NUM_ROUNDS}", "--axis", f"seed={seeds}")
        start = time.time()
        _call("tune", *settings, "--output", folder)
        seconds = time.time() - start
        histories = _histories(folder)
        with closing(sqlite3.connect(Path(folder) / "mlflow.db")) as store:
            query = "SELECT value FROM metrics WHERE key = ?"
            ((outside,),) = store.execute(query, (OUTSIDE,)).fetchall()
    every = [one for rounds in histories for one in rounds]
    span = max(one.time for one in every) - min(_began(one) for one in every)
    in_rounds = sum(one.seconds[SECONDS_ROUND] for one in every)
    return {
        "outside_rounds_per_trial": outside,
        "rounds_per_second": NUM_TRIALS * NUM_ROUNDS / span,
        "share_in_rounds": in_rounds / span / (os.cpu_count() or 1),
        "launch_seconds": seconds,
    }


def _began(one: Round) -> float:
    return one.time - one.seconds[SECONDS_ROUND]


def _histories(folder: str) -> list[list[Round]]:
    return [read_rounds(trial) for trial in (Path(folder) / "trials").glob("*")]


def _command(command: str, *words: str) -> list[str]:
    return [sys.executable, "-m", f"fedcome_ray.{command}", *words]


def _call(*words: str) -> None:
    subprocess.run(_command(*words), capture_output=True, check=True)


def print_results(results: dict[str, dict[str, float]]) -> None:
    print(f"load before: {results['load_before']:.2f}")
    print(f"\n{'seconds to the end of round 1':40}")
    for name, seconds in results["first_round_seconds"].items():
        print(f"  {name:38}{seconds:8.2f}")
    print(f"\n{'seconds of --help':40}")
    for name, seconds in results["help_seconds"].items():
        print(f"  {name:38}{seconds:8.2f}")
    print(f"\n{'MB of a trial on two shards (PSS)':40}")
    for role, megabytes in results["resident_megabytes"].items():
        print(f"  {role:38}{megabytes:8.0f}")
    print(f"  {'all':38}{sum(results['resident_megabytes'].values()):8.0f}")
    found = results["many_trials"]
    print(f"\n{f'{NUM_TRIALS} trials of {NUM_ROUNDS} rounds':40}")
    print(f"  {'seconds outside of rounds, per trial':38}{found['outside_rounds_per_trial']:8.2f}")
    print("  of the time between the first and the last round:")
    print(f"  {'rounds per second':38}{found['rounds_per_second']:8.1f}")
    print(f"  {'share in rounds':38}{found['share_in_rounds']:8.0%}")
    print(f"  {'seconds of the whole command':38}{found['launch_seconds']:8.1f}")


if __name__ == "__main__":
    main()
