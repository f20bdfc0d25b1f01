"""fedcome_ray beside the field: the same federated training by every peer, measured by one command.

    python -m tests.benchmarks.peers [--quick] [--peers A,B] [--json PATH] [--plot PATH]

FedAvg with all clients in each of 20 rounds, one local epoch of plain SGD, the test set evaluated
after every round; the same examples, initial params, batch size and learning rate for all. Peers
take turns, so that a busy machine is unfair to all alike, and medians count; before the first turn
each is launched once, since some compile or read what is then kept. CPU-seconds are of all
processes of a peer, Ray's own included, between the ends of the first and the last round; wall time
is from the launch. One thread per process; ours on Ray and Flower have two workers. A peer
whose accuracy is not that of ours, within 3 points, is shown as broken.

Frameworks are installed once, pinned, into environments of their own below .venv/peers, which take
about 4 GB; what a peer said last is in .venv/peers/logs. Linux only.
exit codes: 0 all were measured, 1 a peer failed or is broken, 2 the request was wrong
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedcome_ray.trials.provenance import provenance
from tests.benchmarks.peers import environments, examples, summary
from tests.benchmarks.peers.measurement import PeerError, Run, measure, warm_up
from tests.benchmarks.peers.roster import PEERS, REFERENCE, Peer
from tests.benchmarks.peers.task import WORKLOADS, Workload

REPETITIONS, QUICK_REPETITIONS = 5, 2


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    peers = [peer for peer in PEERS.values() if peer.name in {REFERENCE, *options.peers}]
    workloads = [WORKLOADS["mnist_full"]] if options.quick else [*WORKLOADS.values()]
    repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    pythons, missing = install(peers)
    load = os.getloadavg()[0]
    results, sources = {}, {}
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        for workload in workloads:
            path, source = examples.write(workload, Path(folder))
            able = [peer for peer in peers if workload.model in peer.models]
            errors = {peer.name: missing[peer.name] for peer in able if peer.name in missing}
            runs = take_turns(able, workload, path, pythons, errors, repetitions)
            results[workload.name] = summary.summarise(runs, errors)
            sources[workload.name] = source
            print(f"\n{workload.title}; {source}; median of {repetitions} (least–most)\n")
            print(summary.table(results[workload.name]), flush=True)
    if options.json:
        notes = {
            "data": sources,
            "repetitions": repetitions,
            "versions": {name: environments.versions_in(pythons[name]) for name in pythons},
            "machine": f"{processor()}, {provenance()['machine']}",
            "load_before": load,  # of the machine, in the minute before: others disturb
            "commit": provenance()["commit"],
            "has_changes": provenance()["dirty"] == "true",
            "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        }
        options.json.write_text(json.dumps({**results, **notes}, indent=2) + "\n")
    if options.plot:
        summary.draw(results, {one.name: one.title for one in workloads}, options.plot)
    return int(any("error" in one for own in results.values() for one in own.values()))


def install(
    peers: Iterable[Peer], folder: Path = environments.FOLDER
) -> tuple[dict[str, Path], dict[str, str]]:
    """The interpreters of peers, and why others have none."""
    pythons, missing = {}, {}
    for peer in peers:
        try:
            pythons[peer.name] = environments.python_of(peer, folder)
        except PeerError as error:
            missing[peer.name] = str(error)
    return pythons, missing


def take_turns(
    peers: Iterable[Peer],
    workload: Workload,
    path: Path,
    pythons: Mapping[str, Path],
    errors: dict[str, str],
    repetitions: int,
    logs: Path = environments.FOLDER / "logs",
) -> dict[str, list[Run]]:
    """All peers, then all again; those that fail are noted among the errors and left out.

    Before they count, each of them is launched once up to the end of its first round.
    """
    logs.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[Run]] = {}
    for repetition in range(repetitions + 1):
        for peer in peers:
            if peer.name in errors:
                continue
            what = (peer.module, peer.form, workload.name, str(path))
            command = [str(pythons[peer.name]), "-m", "tests.benchmarks.peers.adapter", *what]
            log = logs / f"{workload.name}-{peer.name}.txt"
            turn = f"{repetition} of {repetitions}" if repetition else "warming up"
            name = f"{workload.name} {peer.name}, {turn}"
            try:
                with tempfile.TemporaryDirectory(prefix="peer-") as scratch:
                    if repetition == 0:
                        warm_up(command, Path(scratch), log)
                        continue
                    run = measure(command, Path(scratch), log)
            except PeerError as error:
                errors[peer.name] = str(error)
                print(f"{name}: {error}", file=sys.stderr)
                continue
            runs.setdefault(peer.name, []).append(run)
            print(f"{name}: {run.cpu_seconds_per_round:.3f} CPU-s a round", file=sys.stderr)
    return runs


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if "model name" in line), "unknown")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_REPETITIONS} repetitions instead of {REPETITIONS}, no CNN; about 10 minutes",
    )
    parser.add_argument(
        "--peers",
        type=_peers,
        default=[*PEERS],
        metavar="A,B",
        help=f"only these of {', '.join(PEERS)}; `{REFERENCE}` always, as the reference",
    )
    parser.add_argument("--json", type=_file, metavar="PATH", help="where to write the results")
    parser.add_argument("--plot", type=_file, metavar="PATH", help="where to draw them, as PNG")
    return parser


def _peers(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"no peer `{name}`; there are {', '.join(PEERS)}")
    return names


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, got `{text}`")
    return path


if __name__ == "__main__":
    sys.exit(main())
