"""Disturb launches, go on, compare: `python -m tests.chaos --seconds N --seed S`.

A small grid is run undisturbed, in this process. Then chains of launches of the same grid on Ray,
with shards and without, are disturbed at random moments in random ways, and the same command is
given again until all is done. Results, histories and MLflow must be as if nothing had happened, and
no process may be left over; else the exit code is 1.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml

from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import identified
from fedcome_ray.trials.folder import RESULT, read_rounds
from tests.end_to_end.commands import environment
from tests.leftovers import bits, rounds_in_mlflow, run_untracked

ROUNDS = 200
METHODS = ["scaffold", "fedcome"]
BASE = {
    "data": {"dataset": "digits", "num_clients": 20},
    "local": {"epochs": 100, "batch_size": 4},  # long enough to be disturbed
    "participation": 0.5,
    "rounds": ROUNDS,
    "eval_every": 5,
}
LAYOUTS = {"joint": [], "shards": ["--num-shards", "2", "--cpus-per-shard", "0.4"]}
PATIENCE = 600.0
"""Seconds without a new round, or for a launch to end: Ray may take minutes to start."""
LINGER_SECONDS = 150.0
"""That Ray's own processes may take to end; without a GCS, some of them wait a minute for it."""
STOPPED_SECONDS = 10.0

Tree = list[psutil.Process]  # a launch's processes, the driver first
Launch = subprocess.Popen[bytes]


class NoTargetError(Exception):
    """There is no such process, as a launch has just begun or ended."""


def one_of(tree: Tree, title: str, rng: random.Random) -> psutil.Process:
    """A process of a kind, by what Ray calls it."""
    found = [process for process in tree if process.name().startswith(title)]
    if not found:
        raise NoTargetError(title)
    return rng.choice(found)


def wait_for_end(tree: Tree) -> Tree:
    """Wait until processes have ended; those that have not."""
    end = time.monotonic() + LINGER_SECONDS
    while (left := [one for one in tree if is_alive(one)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def is_alive(process: psutil.Process) -> bool:
    """A zombie is not: it has ended, and only init has not asked how."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(title: str) -> Callable[[Tree, random.Random], None]:
    return lambda tree, rng: one_of(tree, title, rng).kill()


def stop_shard(tree: Tree, rng: random.Random) -> None:
    shard = one_of(tree, SHARD, rng)
    shard.suspend()
    time.sleep(STOPPED_SECONDS)
    shard.resume()


def tell_driver(*signals: signal.Signals) -> Callable[[Tree, random.Random], None]:
    def tell(tree: Tree, rng: random.Random) -> None:
        for one in signals:
            tree[0].send_signal(one)
            time.sleep(rng.uniform(0.1, 1.0))

    return tell


def tell_group(one: signal.Signals) -> Callable[[Tree, random.Random], None]:
    return lambda tree, rng: os.killpg(tree[0].pid, one)


class Disturbance(NamedTuple):
    """Something that happens to a launch."""

    act: Callable[[Tree, random.Random], None]
    is_end: bool  # of the launch
    layouts: tuple[str, ...] = tuple(LAYOUTS)


SHARD, TRIAL = "ray::ShardHost", "ray::ResourceTrainable"  # Tune's name of what it runs
KINDS = {
    "SIGKILL shard": Disturbance(kill(SHARD), is_end=False, layouts=("shards",)),
    "SIGSTOP shard": Disturbance(stop_shard, is_end=False, layouts=("shards",)),
    "SIGKILL trial": Disturbance(kill(TRIAL), is_end=False),
    "SIGKILL raylet": Disturbance(kill("raylet"), is_end=True),
    "SIGKILL GCS": Disturbance(kill("gcs_server"), is_end=True),
    "SIGKILL driver": Disturbance(tell_driver(signal.SIGKILL), is_end=True),
    "SIGTERM driver": Disturbance(tell_driver(signal.SIGTERM), is_end=True),
    "SIGINT driver": Disturbance(tell_driver(signal.SIGINT), is_end=True),
    "SIGINT twice": Disturbance(tell_driver(signal.SIGINT, signal.SIGINT), is_end=True),
    "SIGTERM group": Disturbance(tell_group(signal.SIGTERM), is_end=True),
    "SIGHUP group": Disturbance(tell_group(signal.SIGHUP), is_end=True),
    "SIGKILL group": Disturbance(tell_group(signal.SIGKILL), is_end=True),
}


@dataclass
class Tally:
    """What disturbances did."""

    survived: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)  # the launch ended before
    redone: Counter[str] = field(default_factory=Counter)  # rounds
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    """Until there was a new round."""
    orphans: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.orphans and not self.differences

    def __str__(self) -> str:
        heads = ("survived", "missed", "rounds redone", "seconds lost")
        lines = ["".join([f"{'disturbance':16}", *(f"{head:>15}" for head in heads)])]
        lines += [
            f"{kind:16}{self.survived[kind]:15}{self.missed[kind]:15}{self.redone[kind]:15}"
            f"{self.seconds[kind]:15.1f}"
            for kind in KINDS
        ]
        lines.append(
            f"{self.survived.total()} survived, {self.redone.total()} rounds redone, "
            f"{sum(self.seconds.values()):.0f} seconds lost, {len(self.orphans)} orphans, "
            f"{len(self.differences)} differences"
        )
        return "\n".join([*lines, *self.orphans, *self.differences])


class Chain:
    """Launches of the grid into one folder, one after the other."""

    def __init__(self, output: Path, layout: str, rng: random.Random, tally: Tally) -> None:
        self.output = output
        self._layout = layout
        self._rng = rng
        self._tally = tally
        self._launch: Launch | None = None

    def disturb(self, kind: str) -> None:
        """Once it is under way, and note what it costs."""
        self._follow(self._beyond(self._rounds()))
        time.sleep(self._rng.uniform(0, 1.5))
        before, begun = self._rounds(), time.monotonic()
        try:
            if not (tree := self._tree()):
                raise NoTargetError("a launch")
            KINDS[kind].act(tree, self._rng)
        except (psutil.NoSuchProcess, ProcessLookupError, NoTargetError):
            self._tally.missed[kind] += 1
            return
        if KINDS[kind].is_end and self._launch is not None:
            self._launch.wait(PATIENCE)
            self._count_orphans(tree)
        lowest = self._follow(self._beyond(before))
        self._tally.survived[kind] += 1
        self._tally.redone[kind] += sum(max(0, n - lowest[name]) for name, n in before.items())
        self._tally.seconds[kind] += time.monotonic() - begun

    def finish(self) -> None:
        """The same command until all is done, and once more: MLflow may have been cut short."""
        self._follow(lambda _: False)
        if self._launch is not None:
            self._launch.wait(PATIENCE)
        self._launch = start(self.output, self._layout)
        if self._launch.wait(PATIENCE) != 0:
            self._tally.differences.append(f"{self.output}: the last launch failed")

    def close(self) -> None:
        """Leave nothing running, whatever happened."""
        tree = self._tree()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for_end(tree)

    def _tree(self) -> Tree:
        """The processes of the launch, the driver first; none if it has ended."""
        if self._launch is None or self._launch.poll() is not None:
            return []
        driver = psutil.Process(self._launch.pid)
        return [driver, *driver.children(recursive=True)]

    def _beyond(self, before: dict[str, int]) -> Callable[[dict[str, int]], bool]:
        """Whether each trial has more rounds than before, or all."""
        return lambda now: (
            bool(now)
            and all(now.get(name, 0) > min(rounds, ROUNDS) for name, rounds in before.items())
        )

    def _follow(self, is_reached: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """Keep launches going until that, or the end; the fewest rounds that each trial had."""
        since, last, num_launches = time.monotonic(), self._rounds(), 0
        lowest = last
        while len(list(self.output.glob(f"trials/*/{RESULT}"))) < len(METHODS):
            if self._launch is None or self._launch.poll() is not None:
                self._launch = start(self.output, self._layout)
                num_launches += 1
            now = self._rounds()
            lowest = {name: min(rounds, lowest.get(name, rounds)) for name, rounds in now.items()}
            if is_reached(now):
                break
            if now != last:
                since, last, num_launches = time.monotonic(), now, 0
            elif time.monotonic() > since + PATIENCE:
                raise TimeoutError(self._standstill(num_launches))
            time.sleep(0.05)
        return lowest

    def _standstill(self, num_launches: int) -> str:
        """What tells a launch that hangs from a machine that is too busy to run it."""
        used = 0.0
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                used += sum(process.cpu_times()[:2])
        words = self.output.with_suffix(".log").read_text(errors="replace").splitlines()[-3:]
        return (
            f"{self.output}: no round for {PATIENCE:.0f} s, in which {num_launches} launches "
            f"were begun; the last has used {used:.0f} s of CPU time, at a load of "
            f"{os.getloadavg()[1]:.0f} on {os.cpu_count()} cores, and said: {' / '.join(words)}"
        )

    def _count_orphans(self, tree: Tree) -> None:
        for process in wait_for_end(tree):
            with suppress(psutil.NoSuchProcess):
                self._tally.orphans.append(f"orphan {process.pid} {process.name()}")
                process.kill()

    def _rounds(self) -> dict[str, int]:
        """In each history; they become fewer when a trial goes on from a checkpoint."""
        return {path.name: len(read_rounds(path)) for path in self.output.glob("trials/*")}


def grid_file(folder: Path) -> Path:
    path = folder / "chaos.yaml"
    path.write_text(yaml.safe_dump({"base": BASE, "axes": {"method.name": METHODS}}))
    return path


def start(output: Path, layout: str) -> Launch:
    command = [sys.executable, "-m", "fedcome_ray.tune", "--grid", str(grid_file(output.parent))]
    with output.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--output", str(output), *LAYOUTS[layout]],
            stdout=log,
            stderr=log,
            env=environment(),
            process_group=0,
        )


def undisturbed(folder: Path) -> dict[str, Any]:
    """What the grid's trials leave: the same in this process as on Ray."""
    loaded = grid.load(str(grid_file(folder)))
    for trial in identified(grid.sweep(loaded, grid.profile_name(loaded, None), [], {}), None):
        run_untracked(trial, folder / "undisturbed")
    return bits(folder / "undisturbed")


def run_chain(
    output: Path,
    layout: str,
    kinds: Sequence[str],
    rng: random.Random,
    tally: Tally,
    expected: dict[str, Any],
) -> None:
    """Disturb launches in these ways, let the last one finish, and compare what they left."""
    chain = Chain(output, layout, rng, tally)
    try:
        for kind in kinds:
            chain.disturb(kind)
        chain.finish()
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        tally.differences.append(str(error))
    finally:
        chain.close()
    if bits(output) != expected:
        tally.differences.append(f"{output}: other results")
    mirrored = rounds_in_mlflow(f"sqlite:///{output / 'mlflow.db'}", "chaos")
    if mirrored != [("FINISHED", list(range(ROUNDS + 1)))] * len(METHODS):
        tally.differences.append(f"{output}: MLflow has other rounds")


def chains(rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Layouts in turn, each with a few kinds; all have had their turn before one comes again."""
    decks: dict[str, list[str]] = {layout: [] for layout in LAYOUTS}
    for layout in cycle(LAYOUTS):
        if not decks[layout]:
            decks[layout] = [kind for kind in KINDS if layout in KINDS[kind].layouts]
            rng.shuffle(decks[layout])
        number = rng.randint(2, 5)
        chosen, decks[layout] = decks[layout][:number], decks[layout][number:]
        yield layout, chosen


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to disturb")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    rng, tally = random.Random(args.seed), Tally()
    # As Ctrl-C, which leaves no launch behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch, suppress(KeyboardInterrupt):
        expected = undisturbed(Path(scratch))
        end = time.monotonic() + args.seconds
        for number, (layout, kinds) in zip(count(), chains(rng), strict=False):
            if time.monotonic() > end:
                break
            output = Path(scratch) / f"{number}-{layout}"
            print(f"{output.name}: {', '.join(kinds)}", file=sys.stderr, flush=True)
            run_chain(output, layout, kinds, rng, tally, expected)
    print(tally)
    return 0 if tally.is_good and tally.survived else 1


if __name__ == "__main__":
    sys.exit(main())
