"""An environment for each peer, made once: frameworks pin versions that contradict each other."""

import subprocess
import sys
from importlib.metadata import distributions, version
from pathlib import Path

from tests.benchmarks.peers.measurement import PeerError, last_line
from tests.benchmarks.peers.roster import Peer
from tests.benchmarks.peers.task import ROOT

FOLDER = ROOT / ".venv" / "peers"
# The same for all, also its build: where ours is for the CPU, another would pull gigabytes of CUDA.
TORCH = f"torch=={version('torch')}"
MADE_FROM = "made_from.txt"
SHOWN = ("fedcome-ray", "flwr", "fluke-fl", "jax", "pfl", "ray", "torch")


def python_of(peer: Peer, folder: Path) -> Path:
    """The interpreter that has what the peer needs, installed now if it is not there yet."""
    if not peer.requirements:
        return Path(sys.executable)
    place = folder / peer.module
    python, stamp = place / "bin" / "python", place / MADE_FROM
    if not (stamp.is_file() and stamp.read_text() == made_from(peer)):
        print(f"installing {' '.join(peer.requirements)} into {place}", file=sys.stderr)
        place.parent.mkdir(parents=True, exist_ok=True)
        constraints = folder / "constraints.txt"
        constraints.write_text(TORCH)
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _call(sys.executable, "-m", "venv", "--clear", str(place))
        _call(*pip, "--constraint", str(constraints), *peer.requirements)
        stamp.write_text(made_from(peer))
    return python


def made_from(peer: Peer) -> str:
    """What an environment is made again for, if it changes."""
    return "\n".join([sys.version, TORCH, *peer.requirements])


def versions_in(python: Path) -> dict[str, str]:
    """Of the packages that matter, in the environment of this interpreter."""
    place = python.parent.parent.glob("lib/python*/site-packages")
    found = {one.name.lower(): one.version for one in distributions(path=[*map(str, place)])}
    return {name: found[name] for name in SHOWN if name in found}


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(f"could not be installed: {last_line(done.stderr)}")
