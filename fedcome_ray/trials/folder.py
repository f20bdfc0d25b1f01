"""The folder of a trial, which any process can read, and continue, at any time.

trial.json               the settings
commands.txt             the commands that ran it, a line each
plugin.py                the code of its method, where that is a plugin
rounds.jsonl             one line for each round: cohort, metrics, seconds; first the initial model
checkpoint.safetensors   everything that the next round needs
trial.log                what went wrong, if something did
stopped                  empty; a search stopped the trial early
model.safetensors        the final params, when finished
clients.parquet          every client's results in every evaluated round, when finished
population.parquet       every client's examples and classes, when finished
similarity.parquet       what the sampler learnt of pairs of clients, if it did, when finished
result.json              written last: its presence says that the trial is finished
"""

import fcntl
import json
import os
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedcome_ray import metrics
from fedcome_ray.errors import FedcomeError, UserError
from fedcome_ray.federation.round import Round
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.trials.checkpoint import replace
from fedcome_ray.trials.provenance import refuse_plain

CHECKPOINT = "checkpoint.safetensors"
LOG = "trial.log"
MODEL = "model.safetensors"
RESULT = "result.json"
ROUNDS = "rounds.jsonl"
SETTINGS = "trial.json"
STOPPED = "stopped"


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


def write_result(folder: Path, result: TrialResult) -> None:
    text = json.dumps(asdict(result), indent=2)
    replace(folder / RESULT, lambda path: path.write_text(text))


def read_result(folder: Path) -> TrialResult | None:
    """The result of a finished trial, None for any other."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete it to run the trial again") from None
    names = {field.name for field in fields(TrialResult)}
    missing = names - content.keys() or {metrics.ACCURACY_TAIL} - content["final"].keys()
    if missing:
        raise UserError(f"{path} lacks {sorted(missing)}; delete it to run the trial again")
    return TrialResult(**{name: content[name] for name in names})


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
    with (folder / ROUNDS).open("a") as file:
        file.writelines(map(_line, rounds))
        file.flush()
        os.fsync(file.fileno())  # else a power cut could leave a checkpoint without its history


def read_rounds(folder: Path) -> list[Round]:
    """The complete lines of a trial's history; a torn last line was never part of a checkpoint."""
    path = folder / ROUNDS
    if not path.exists():
        return []
    text = path.read_text(errors="replace")
    try:
        return [_round(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (ValueError, KeyError) as error:
        raise FedcomeError(
            f"{path} is damaged ({error}); delete {folder} to start the trial anew"
        ) from None


def _line(one: Round) -> str:
    content = {
        "round": one.number,
        "time": one.time,
        "metrics": one.metrics,
        "seconds": one.seconds,
        "cohort": one.cohort,
    }
    return json.dumps(content) + "\n"


def _round(line: str) -> Round:
    content = json.loads(line)
    cohort, seconds = tuple(content["cohort"]), content["seconds"]
    return Round(content["round"], cohort, content["metrics"], seconds, content["time"])


@contextmanager
def exclusive(folder: Path, patience: float = 20.0) -> Iterator[None]:
    """Hold a folder; the workers of a killed launch may need some seconds to let go."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise FedcomeError(f"another process is at work in {folder}") from None
                time.sleep(0.2)
        yield


def log_error(folder: Path, error: Exception) -> None:
    """Keep everything that is known of an error; the folder may be what failed, by a full disk."""
    with suppress(OSError), (folder / LOG).open("a") as file:
        traceback.print_exception(error, file=file)
