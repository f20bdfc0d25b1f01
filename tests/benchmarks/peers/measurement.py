"""One run of one peer: launched, followed round by round, ended."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path

from tests.benchmarks.peers.task import ROOT, ROUNDS
from tests.benchmarks.processes import Offspring, offspring

PATIENCE = 1200.0  # seconds that a run may take
GRACE = 60.0  # seconds that it may take to end
POLLING = 0.5  # seconds between looks at the memory
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "NPROC": "1",  # the threads of JAX
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}


class PeerError(Exception):
    """Why a peer could not be measured, in one line."""


@dataclass(frozen=True)
class Run:
    """What was measured of all processes of a peer."""

    cpu_seconds_per_round: float  # between the ends of the first and the last round
    first_round_s: float  # from the launch to the end of the round
    round20_s: float
    memory_gb: float  # at its peak, pages that processes share counted once
    accuracy: float  # of the last round


MEASURED = tuple(field.name for field in fields(Run))


@dataclass(frozen=True)
class Mark:
    """The end of a round, told by the peer, timed by us."""

    number: int
    accuracy: float
    wall: float
    cpu: float


def measure(command: Sequence[str], scratch: Path, log: Path, patience: float = PATIENCE) -> Run:
    """Launch a peer; what it leaves is in `scratch`, what it says in the log."""
    with launched(command, scratch, log, patience) as peer, peak_memory(peer.started) as peak:
        marks = list(follow(peer))
        with suppress(subprocess.TimeoutExpired):
            peer.process.communicate(timeout=GRACE)
    is_done = len(marks) == ROUNDS and peer.process.returncode == 0
    check(peer, marks, is_done, log, patience)
    return run_of(marks, peak[0])


def warm_up(command: Sequence[str], scratch: Path, log: Path, patience: float = PATIENCE) -> None:
    """The same up to the end of the first round.

    What is read or compiled once on a machine is then in its caches.
    """
    with launched(command, scratch, log, patience) as peer:
        marks = list(islice(follow(peer), 1))
    check(peer, marks, len(marks) == 1, log, patience)


@dataclass(frozen=True)
class Launched:
    """A peer under way."""

    process: "subprocess.Popen[str]"
    started: Offspring
    begin: float  # when it was launched
    is_over: threading.Event  # its patience


@contextmanager
def launched(
    command: Sequence[str], scratch: Path, log: Path, patience: float
) -> Iterator[Launched]:
    """A peer, which is ended with all that it started."""
    variables = {**os.environ, **ONE_THREAD, **QUIET, "PYTHONPATH": str(ROOT)}
    begin, pipe = time.perf_counter(), subprocess.PIPE
    with log.open("w") as errors, offspring() as started:
        process = subprocess.Popen(
            command, cwd=scratch, env=variables, stdin=pipe, stdout=pipe, stderr=errors, text=True
        )
        with limited(patience, started) as is_over:
            try:
                yield Launched(process, started, begin, is_over)
            finally:
                process.kill()
                process.wait()
                started.end()  # who else may hold its pipes
                process.communicate()


def check(peer: Launched, marks: Sequence[Mark], is_done: bool, log: Path, patience: float) -> None:
    """Say how far a peer got, and why no further, if it has not done what it was launched for."""
    if peer.is_over.is_set():
        raise PeerError(f"stopped after {patience:.0f} s and {len(marks)} rounds")
    if not is_done:
        said = last_line(log.read_text(errors="replace"))
        raise PeerError(f"ended after {len(marks)} rounds: {said}")


def run_of(marks: Sequence[Mark], peak_bytes: int) -> Run:
    first, last = marks[0], marks[-1]
    return Run(
        cpu_seconds_per_round=(last.cpu - first.cpu) / (last.number - first.number),
        first_round_s=first.wall,
        round20_s=last.wall,
        memory_gb=peak_bytes / 2**30,
        accuracy=last.accuracy,
    )


def follow(peer: Launched) -> Iterator[Mark]:
    """The ends of rounds; the peer waits at each until it is read, so nobody computes then."""
    process = peer.process
    assert process.stdin is not None
    assert process.stdout is not None
    expected = 1
    for line in process.stdout:
        report = parse(line)
        if report is None:
            continue
        number, accuracy = report
        if number != expected:
            raise PeerError(f"told of round {number} instead of {expected}")
        yield Mark(number, accuracy, time.perf_counter() - peer.begin, peer.started.cpu_seconds())
        if number == ROUNDS:
            return
        expected += 1
        try:
            process.stdin.write("\n")
            process.stdin.flush()
        except BrokenPipeError:  # it has ended: so does what it says
            continue


def parse(line: str) -> tuple[int, float] | None:
    """A round's number and accuracy, if the line is about one and not the peer's own talk."""
    try:
        found = json.loads(line)
        return int(found["round"]), float(found["accuracy"])
    except (ValueError, TypeError, KeyError):
        return None


def last_line(text: str) -> str:
    """Where Python and pip say what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "without a word"


@contextmanager
def limited(seconds: float, started: Offspring) -> Iterator[threading.Event]:
    """After so long, end whatever was started."""
    is_over = threading.Event()

    def stop() -> None:
        is_over.set()
        started.end()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


@contextmanager
def peak_memory(started: Offspring) -> Iterator[list[int]]:
    """Looks at the memory of what was started, again and again."""
    peak, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(POLLING):
            peak[0] = max(peak[0], started.resident_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()
