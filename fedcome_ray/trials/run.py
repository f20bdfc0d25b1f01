"""A trial under way: its rounds, its history and its folder.

    trial.json               the settings
    rounds.jsonl             one line for each round: cohort, metrics, seconds
    checkpoint.safetensors   everything that the next round needs
    trial.log                what went wrong, if something did
    stopped                  empty; a search stopped the trial early
    model.safetensors        the final params, when finished
    clients.parquet          every client's results in every evaluated round, when finished
    population.parquet       every client's examples and classes, when finished
    similarity.parquet       what the sampler learnt of pairs of clients, if it did, when finished
    result.json              written last: its presence says that the trial is finished

A folder can be continued by any process at any time. Rounds after the last checkpoint are repeated
and, since rounds are pure functions of the state, come out the same.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedcome_ray import models
from fedcome_ray.clients.company import computed_with
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import ConfigError, FedcomeError, ShardError, UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import RoundRecord, Shards, run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.models.model import Model
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import aligned
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.samplers.table import DenseTable
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.provenance import check_portable, provenance
from fedcome_ray.trials.tables import (
    ClientHistory,
    client_table,
    population_table,
    similarity_table,
)

Line = dict[str, Any]  # a line of rounds.jsonl

# A checkpoint may take this share of the time; and a crash should not cost more than this long.
CHECKPOINT_SHARE = 0.05
CHECKPOINT_SECONDS = 20.0
MAX_RECOVERIES = 10

CHECKPOINT = "checkpoint.safetensors"
ROUNDS = "rounds.jsonl"
RESULT = "result.json"


class TrialRun:
    """Runs the rounds of a trial and keeps its folder up to date."""

    def __init__(
        self,
        trial: Trial,
        population: Population,
        shards: Shards,
        folder: Path,
        init_params: torch.Tensor | None = None,
    ) -> None:
        self.trial = trial
        self.shards = shards
        self.folder = folder
        device.prepare_process()
        model = models.build(trial.model, population.feature_shape, population.num_classes)
        params = model.init(trial.seed) if init_params is None else aligned(init_params)
        self.server = Server(trial, params, population.num_clients)
        self.lines: list[Line] = []
        self.recoveries = 0
        self._initial = self.server.state
        self._num_clients = population.num_clients
        self._population = population
        self._num_reported = 0
        self._num_written = 0
        self._checkpoint_cost = 0.0
        self.checkpoint_seconds = 0.0  # of all checkpoints
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trial.json").write_text(trial.model_dump_json(indent=2))
        self._restore()
        self.num_restored = len(self.lines)

    @property
    def is_finished(self) -> bool:
        return len(self.lines) == self.trial.rounds

    def advance(self, seconds: float) -> list[Line]:
        """Run rounds for about this long, at least one; the lines not handed out before.

        The first call after a restart hands out the history too, so whoever listens can fill gaps.
        """
        end = time.monotonic() + seconds
        while not self.is_finished:
            try:
                self._add(self._run_round())
                self._checkpoint_if_due()
            except ShardError:
                self.recoveries += 1
                if self.recoveries > MAX_RECOVERIES:
                    raise
                self.shards.rebuild()
                self._restore()
            if time.monotonic() >= end:
                break
        self._write_lines()
        news = self.lines[self._num_reported :]
        self._num_reported = max(self._num_reported, len(self.lines))
        return news

    def checkpoint(self) -> None:
        """Save everything that the next round needs."""
        start = time.monotonic()
        self._write_lines()  # first: a checkpoint never is ahead of the history
        states = self.shards.export_states()
        arrays = checkpoint.flatten(self.server.state, "server")
        arrays |= checkpoint.flatten(self._client_history(), "history")
        arrays |= {f"clients.{name}": array for name, array in states.items()}
        notes = {"computed_with": json.dumps(self._computed_with())}
        checkpoint.write(self.folder / CHECKPOINT, arrays, notes)
        self._last_checkpoint = time.monotonic()
        self._checkpoint_cost = self._last_checkpoint - start
        self.checkpoint_seconds += self._checkpoint_cost

    def finish(self) -> None:
        """Write the results; the checkpoint has served."""
        params = self.server.params.numpy()
        settings = {"trial": self.trial.model_dump_json()}
        checkpoint.replace(
            self.folder / "model.safetensors",
            lambda path: save_file({"params": params}, path, metadata=settings),
        )
        for name, table in self._tables().items():
            checkpoint.replace(self.folder / name, table.to_parquet)
        result = {
            "key": self.trial.key,
            "name": self.trial.name,
            "rounds": len(self.lines),
            "final": self.lines[-1]["metrics"],
            "params_sha256": hashlib.sha256(params.tobytes()).hexdigest(),
            "recoveries": self.recoveries,
            "provenance": provenance(),
            "computed_with": self._computed_with(),
        }
        text = json.dumps(result, indent=2)
        checkpoint.replace(self.folder / RESULT, lambda path: path.write_text(text))
        (self.folder / CHECKPOINT).unlink(missing_ok=True)

    def _computed_with(self) -> list[Arithmetic]:
        """What server and shards computed with, here and before, each kind of process once."""
        here = [computed_with(device.CPU), *self.shards.computed_with()]
        found = [*self._computed_with_before, *here]
        return [one for number, one in enumerate(found) if one not in found[:number]]

    def _tables(self) -> dict[str, Any]:
        sampler = self.server.state.sampler
        tables = {
            "clients.parquet": client_table(self._client_history()),
            "population.parquet": population_table(self._population),
        }
        if isinstance(sampler, DenseTable):
            tables["similarity.parquet"] = similarity_table(sampler)
        return tables

    def _run_round(self) -> RoundRecord:
        number = self.server.state.round_index
        return run_round(
            self.server,
            self.shards,
            evaluate=self.trial.is_evaluated(number),
            evaluate_train=self.trial.is_train_evaluated(number),
        )

    def _add(self, record: RoundRecord) -> None:
        self.lines.append(as_line(record))
        test, train = record.metrics, record.train_metrics
        if test is None and train is None:
            return
        unknown = np.full(self._num_clients, np.nan)
        columns = (
            np.array(record.round_index),
            test.client_loss if test else unknown,
            test.client_accuracy if test else unknown,
            train.client_loss if train else unknown,
        )
        for rows, column in zip(self._evaluations, columns, strict=True):
            rows.append(column)

    def _client_history(self) -> ClientHistory:
        rounds, *results = (np.array(rows) for rows in self._evaluations)
        shape = (len(rounds), self._num_clients)
        return ClientHistory(
            rounds.astype(np.int64),
            *(result.reshape(shape).astype(np.float32) for result in results),
        )

    def _restore(self) -> None:
        """Go back to the last checkpoint, or to the start if there is none."""
        path = self.folder / CHECKPOINT
        self._evaluations: tuple[list[NDArray[Any]], ...] = ([], [], [], [])
        arrays: checkpoint.Arrays = {}
        self.server.state = self._initial
        self._computed_with_before: list[Arithmetic] = []
        if path.exists():
            try:
                arrays, notes = checkpoint.read(path)
            except (SafetensorError, OSError) as error:
                raise FedcomeError(
                    f"{path} is damaged ({error}); delete it to start the trial anew"
                ) from None
            self._computed_with_before = json.loads(notes.get("computed_with", "[]"))
            check_portable(self._computed_with_before, self.folder)
            self.server.state = checkpoint.rebuild(self._initial, arrays, "server")
            history = checkpoint.rebuild(self._client_history(), arrays, "history")
            self._evaluations = tuple(list(column) for column in history)
        prefix = "clients."
        self.shards.restore_states(
            {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        )
        self.lines = self._read_history()
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        checkpoint.replace(self.folder / ROUNDS, lambda path: path.write_text(text))
        self._num_written = len(self.lines)
        self._last_checkpoint = time.monotonic()

    def _read_history(self) -> list[Line]:
        """The lines up to the checkpoint; those of later rounds will be written again."""
        num_rounds = self.server.state.round_index
        if num_rounds == 0:
            return []
        lines = read_lines(self.folder)[:num_rounds]
        if [line["round"] for line in lines] != list(range(num_rounds)):
            raise FedcomeError(
                f"{self.folder / ROUNDS} is damaged: it does not have every round up to the "
                f"checkpoint's {num_rounds}; delete {self.folder} to start the trial anew"
            )
        return lines

    def _checkpoint_if_due(self) -> None:
        wait = max(CHECKPOINT_SECONDS, self._checkpoint_cost / CHECKPOINT_SHARE)
        if not self.is_finished and time.monotonic() - self._last_checkpoint > wait:
            self.checkpoint()

    def _write_lines(self) -> None:
        with (self.folder / ROUNDS).open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines[self._num_written :])
            file.flush()
            os.fsync(file.fileno())  # else a power cut could leave a checkpoint without its history
        self._num_written = len(self.lines)


def check_fits(trial: Trial, population: Population) -> Model:
    """The trial's model; refuse a model or a cohort that does not fit the population."""
    try:
        trial.cohort_size_of(population.num_clients)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return models.build(trial.model, population.feature_shape, population.num_classes)


def as_line(record: RoundRecord) -> Line:
    """A round as a line of the history: metrics by the names under which they are tracked."""
    metrics = {
        name if "/" in name else f"server/{name}": value for name, value in record.info.items()
    }
    if record.metrics is not None:
        metrics |= record.metrics.summary
    if record.train_metrics is not None:
        metrics |= {
            "loss/train": record.train_metrics.loss,
            "accuracy/train": record.train_metrics.accuracy,
        }
    seconds = {f"seconds/{phase}": value for phase, value in record.seconds.items()}
    seconds["seconds/round"] = sum(record.seconds.values())
    return {
        "round": record.round_index,
        "time": round(time.time(), 3),
        "metrics": metrics,
        "seconds": seconds,
        "cohort": record.cohort,
    }


def read_lines(folder: Path) -> list[Line]:
    """The complete lines of a trial's history; a torn last line was never part of a checkpoint."""
    path = folder / ROUNDS
    if not path.exists():
        return []
    text = path.read_text(errors="replace")
    try:
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except ValueError as error:
        raise FedcomeError(
            f"{path} is damaged ({error}); delete {folder} to start the trial anew"
        ) from None


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished trial, None for any other."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        result: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); delete it to run the trial again") from None
    missing = {"final", "provenance", "computed_with"} - result.keys()
    if missing:
        raise UserError(f"{path} lacks {sorted(missing)}; delete it to run the trial again")
    check_portable(result["computed_with"], folder)
    return result


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
