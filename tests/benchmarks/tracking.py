"""Does MLflow keep up, and does a launch wait for it? `python -m tests.benchmarks.tracking`.

The news of many small trials that end within a minute go to a tracker as a launch tells them; no
trial is computed. Then every round must be in the store once. Measured for an SQLite file, and for
a server with basic authentication, an artifact store and PostgreSQL, where that is installed: what
telling costs the launch, what it waits for at its end, and what a trial takes in the store.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.tracking.trackers import Trackers, most_trackers
from fedcome_ray.trials.folder import read_rounds
from tests.leftovers import rounds_in_mlflow, run_untracked
from tests.servers import ADMIN, PASSWORD, MissingError, MlflowServer, postgresql

TRIALS, SECONDS, ROUNDS = 500, 60.0, 20
TAGS = {"grid": "many", "profile": "quick", "launch": "now", "command": "python -m this"}
ROW = "{:20}{:>12}{:>14}{:>12}{:>12}{:>13}{:>7}"


class Place(NamedTuple):
    """A store to be measured."""

    uri: str
    artifacts: Path
    size: Callable[[], int]  # in bytes, without the artifacts


class Measured(NamedTuple):
    """What tracking cost."""

    telling: float  # seconds of the launch, all in all
    cpu_seconds_per_trial: float  # of the process that writes, which a busy machine does not change
    waiting: float  # seconds at its end
    bytes_per_trial: float
    artifact_bytes_per_trial: float
    is_whole: bool  # every round of every trial is there once


def trial_of(seed: int, rounds: int) -> Trial:
    return parse_trial(
        {
            "data": {"dataset": "digits", "num_clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "cohort_size": 4,
            "rounds": rounds,
            "seed": seed,
        }
    )


def measure(
    place: Place, num_trials: int, seconds: float, rounds: int, log_every: int | None = None
) -> Measured:
    """Tell of so many trials within so many seconds; each starts, advances and ends."""
    trials = [trial_of(seed, rounds) for seed in range(num_trials)]
    with tempfile.TemporaryDirectory() as scratch:
        run_untracked(trials[0], Path(scratch))
        (folder,) = (Path(scratch) / "trials").iterdir()  # one for all: only files are read
        history, telling = read_rounds(folder), 0.0
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        where = (place.uri, "many", place.artifacts, TAGS)
        make_tracker = partial(Tracker, *where, log_every=log_every)
        with Trackers(make_tracker, most_trackers(place.uri)) as tracker:
            tracker.check_open()
            imported = cpu_seconds_of_writer() * most_trackers(place.uri)
            empty, begun = place.size(), time.monotonic()
            for number, trial in enumerate(trials):
                time.sleep(max(0.0, begun + number * seconds / num_trials - time.monotonic()))
                start = time.perf_counter()
                tracker.trial_started(trial)
                tracker.trial_advanced(trial, history)
                tracker.trial_ended(trial, "FINISHED", folder)
                telling += time.perf_counter() - start
            end = time.monotonic()
        waiting = time.monotonic() - end
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    written = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - imported
    kept = [n for n in range(rounds + 1) if n % (log_every or 1) == 0 or n == rounds]
    is_whole = tracker.complaint is None and (
        rounds_in_mlflow(place.uri, "many") == [("FINISHED", kept)] * num_trials
    )
    return Measured(
        telling,
        written / num_trials,
        waiting,
        (place.size() - empty) / num_trials,
        size_of(place.artifacts) / num_trials,
        is_whole,
    )


def cpu_seconds_of_writer() -> float:
    """Of MLflow's own process, see `fedcome_ray.tracking.apart`, until now."""
    children = psutil.Process().children()
    return sum(
        sum(child.cpu_times()[:2]) for child in children if "tracking.apart" in str(child.cmdline())
    )


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def sqlite_file() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "mlflow.db"
        yield Place(f"sqlite:///{file}", Path(name) / "artifacts", lambda: file.stat().st_size)


@contextmanager
def guarded_server() -> Iterator[Place]:
    """With PostgreSQL; its name and password are in the environment meanwhile."""
    from sqlalchemy import create_engine, text

    with tempfile.TemporaryDirectory() as name, postgresql() as database:
        server = MlflowServer(Path(name), database, is_guarded=True, num_workers=2)
        engine = create_engine(database)

        def size() -> int:
            with engine.connect() as connection:
                return int(connection.scalar(text("SELECT pg_database_size('mlflow')")) or 0)

        own = {"MLFLOW_TRACKING_USERNAME": ADMIN, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
        before = {variable: os.environ.get(variable) for variable in own}
        os.environ.update(own)
        try:
            server.start()
            yield Place(server.uri, server.artifacts, size)
        finally:
            engine.dispose()
            server.kill()
            for variable, value in before.items():
                os.environ.pop(variable)
                if value is not None:
                    os.environ[variable] = value


PLACES = {"SQLite file": sqlite_file, "server, PostgreSQL": guarded_server}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.benchmarks.tracking", description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="within which they end")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each trial")
    parser.add_argument("--log-every", type=int, metavar="N")
    args = parser.parse_args(argv)
    print(f"{args.trials} trials of {args.rounds} rounds, told of within {args.seconds:g} s")
    heads = ("telling, s", "CPU-s a trial", "waiting, s", "kB a trial", "kB of files", "whole")
    print(ROW.format("store", *heads))
    good = True
    for name, make in PLACES.items():
        try:
            with make() as place:
                found = measure(place, args.trials, args.seconds, args.rounds, args.log_every)
        except MissingError as missing:
            print(f"{name}: not measured, there is no {missing}")
            continue
        good &= found.is_whole
        numbers = (
            f"{found.telling:.2f}",
            f"{found.cpu_seconds_per_trial:.3f}",
            f"{found.waiting:.1f}",
            f"{found.bytes_per_trial / 1024:.1f}",
            f"{found.artifact_bytes_per_trial / 1024:.1f}",
        )
        print(ROW.format(name, *numbers, "yes" if found.is_whole else "NO"), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
