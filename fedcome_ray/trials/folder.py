"""The folder of a trial, which any process can read, and continue, at any time.

trial.json               the settings
commands.txt             the commands that ran it, a line each
plugins/                 the code of its plugins, a folder for each
rounds.jsonl             one line for each round: cohort, metrics, seconds; first the initial model
checkpoint.safetensors   everything that the next round needs
trial.log                what went wrong, if something did
model.safetensors        the final params, when finished
clients.parquet          every client's results in every evaluated round, when finished
population.parquet       every client's examples and classes, when finished
similarity.parquet       what the sampler learnt of pairs of clients, if it did, when finished
result.json              written last: its presence says that the trial is finished
"""

import fcntl
import json
import os
import platform
import time
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedcome_ray import metrics
from fedcome_ray.errors import FedcomeError, UserError
from fedcome_ray.federation.round import Round
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.storage.lease import Lease
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials.checkpoint import keep, replace, writing
from fedcome_ray.trials.provenance import refuse_plain

CHECKPOINT = "checkpoint.safetensors"
ROUNDS_DONE = "server.round_index"  # in a checkpoint
LOG = "trial.log"
MODEL = "model.safetensors"
RESULT = "result.json"
ROUNDS = "rounds.jsonl"
TRIALS = "trials"  # the folder of trials' folders in an output
SETTINGS = "trial.json"
COMMANDS = "commands.txt"
CLIENTS, POPULATION, SIMILARITY = "clients.parquet", "population.parquet", "similarity.parquet"
CHECKED = (SETTINGS, ROUNDS, MODEL, CLIENTS, POPULATION, SIMILARITY)
CHECKSUM = "checksum"  # in the result, of the rest of it


@dataclass(frozen=True)
class TrialResult:
    """What is left of a finished trial."""

    key: str
    name: str
    rounds: int
    final: dict[str, float]  # metrics of the last round
    params_sha256: str
    recoveries: int  # from the death of shards
    provenance: dict[str, str]
    computed_with: list[Arithmetic]
    checksums: dict[str, str] = field(default_factory=dict)  # of the other files, by name


def write_result(folder: Path, result: TrialResult) -> None:
    content = asdict(result)
    text = json.dumps({**content, CHECKSUM: _checksum(content)}, indent=2)
    replace(folder / RESULT, lambda path: path.write_text(text))


def read_result(folder: Path) -> TrialResult | None:
    """The result of a finished trial, None for any other."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(errors="replace"))
        if content.pop(CHECKSUM, None) not in {None, _checksum(content)}:
            raise ValueError("wrong checksum")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it to run the trial again") from None
    content.setdefault("checksums", {})  # results did not always tell
    names = {field.name for field in fields(TrialResult)}
    missing = names - content.keys() or {metrics.ACCURACY_TAIL} - content["final"].keys()
    if missing:
        raise UserError(f"{path} lacks {sorted(missing)}; delete it to run the trial again")
    return TrialResult(**{name: content[name] for name in names})


def _checksum(content: dict[str, Any]) -> str:
    return _crc(json.dumps(content, sort_keys=True).encode())


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def checksums(folder: Path) -> dict[str, str]:
    """Of the files that a trial leaves, by name."""
    found = (folder / name for name in CHECKED)
    return {path.name: _crc(path.read_bytes()) for path in found if path.exists()}


def verified(folder: Path, name: str) -> Path:
    """A file of a trial, as it was when the trial finished; or refuse it."""
    result, path = read_result(folder), folder / name
    if result is None or name not in result.checksums:
        return path
    try:
        if _crc(path.read_bytes()) != result.checksums[name]:
            raise ValueError("wrong checksum")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} is damaged ({error}); delete {folder / RESULT} to run the trial again"
        ) from None
    return path


def read_own_result(folder: Path) -> TrialResult | None:
    """The result that a launch takes for its own; a portable one takes only portable results."""
    result = read_result(folder)
    if result is not None:
        refuse_plain(result.computed_with, folder)
    return result


def write_rounds(folder: Path, rounds: Iterable[Round]) -> None:
    """Make these the whole history."""
    text = "".join(map(_line, rounds))
    replace(folder / ROUNDS, lambda path: path.write_text(text))


def append_rounds(folder: Path, rounds: Iterable[Round]) -> None:
    with writing(folder / ROUNDS), (folder / ROUNDS).open("a") as file:
        file.writelines(map(_line, rounds))


def has_checkpoint(folder: Path) -> bool:
    return (folder / CHECKPOINT).exists()


def keep_beginnings(folder: Path) -> None:
    """Before a checkpoint or a result: neither may outlast a power cut without what it belongs to.

    Until then a trial begins anew, and asking the disk takes as long as a small round.
    """
    for path in (folder / name for name in (SETTINGS, COMMANDS, ROUNDS)):
        if path.exists():
            with writing(path):
                keep(path)


def read_rounds(folder: Path, first: int | None = None) -> list[Round]:
    """The complete lines of a trial's history, or only the first few.

    A torn last line was never part of a checkpoint.
    """
    if not (folder / ROUNDS).exists():
        return []
    path = verified(folder, ROUNDS)
    text = path.read_text(errors="replace")
    try:
        lines = text[: text.rfind("\n") + 1].split("\n")[:-1]
        return [_round(line) for line in lines[:first]]
    except (ValueError, KeyError, TypeError) as error:
        raise FedcomeError(
            f"{path} is damaged ({error}); delete {folder} to start the trial anew"
        ) from None


def history_checksum(folder: Path, num_rounds: int | None = None) -> str:
    """Of a trial's history, or of its first rounds."""
    lines = (folder / ROUNDS).read_bytes().split(b"\n")
    return _crc(b"\n".join(lines[:-1][:num_rounds]))


def _line(one: Round) -> str:
    content = {
        "round": one.number,
        "time": one.time,
        "metrics": one.metrics,
        "seconds": one.seconds,
        "cohort": one.cohort,
        "absent": one.absent,
    }
    return json.dumps(content) + "\n"


def _round(line: str) -> Round:
    content = json.loads(line)
    return Round(
        number=content["round"],
        cohort=tuple(content["cohort"]),
        metrics=content["metrics"],
        seconds=content["seconds"],
        time=content["time"],
        absent=tuple(content.get("absent", ())),  # histories did not always tell
    )


def kept_copy(folder: Path, lease: Lease) -> WorkingCopy:
    """The folder as the working copy of its trial in a storage.

    A checkpoint is sent after the history that it belongs to, the result after all it speaks of.
    """
    remote = lease.remote.at(f"{TRIALS}/{folder.name}")
    return WorkingCopy(remote, folder, last=(CHECKPOINT, RESULT), check=lease.check)


def is_lasting(name: str) -> bool:
    """Whether others than the trial itself have a use for a file of its folder."""
    return Path(name).name != CHECKPOINT


@contextmanager
def exclusive(folder: Path, patience: float = 20.0) -> Iterator[None]:
    """Hold a folder; the workers of a killed launch may need some seconds to let go."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as file:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    file.seek(0)
                    raise FedcomeError(
                        f"another process is at work in {folder}: {file.read() or 'unknown'}; wait "
                        f"for its end, or choose another --output"
                    ) from None
                time.sleep(0.2)
        with suppress(OSError):  # only a name, which a full disk cannot take
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()} on {platform.node()}".encode())
        yield


def log_incident(folder: Path, words: str) -> None:
    """Keep what a trial has survived."""
    with suppress(OSError), (folder / LOG).open("a") as file:
        file.write(f"{words}\n")


def log_error(folder: Path, error: Exception) -> None:
    """Keep everything that is known of an error; the folder may be what failed, by a full disk."""
    with suppress(OSError), (folder / LOG).open("a") as file:
        traceback.print_exception(error, file=file)
