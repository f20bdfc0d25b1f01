"""Runs the rounds of a trial and keeps its folder up to date.

A folder can be continued by any process at any time. Rounds after the last checkpoint are repeated
and, since rounds are pure functions of the state, come out the same.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedcome_ray import metrics, models
from fedcome_ray.clients.company import computed_with
from fedcome_ray.datasets.population import Population
from fedcome_ray.errors import ConfigError, FedcomeError, ShardError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round, before_training, run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import Shards
from fedcome_ray.models.model import Model
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import Arrays, aligned
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.samplers.table import DenseTable
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import (
    CHECKPOINT,
    MODEL,
    ROUNDS,
    SETTINGS,
    TrialResult,
    append_rounds,
    read_rounds,
    write_result,
    write_rounds,
)
from fedcome_ray.trials.provenance import provenance, refuse_plain
from fedcome_ray.trials.tables import (
    ClientHistory,
    client_table,
    population_table,
    similarity_table,
)

# A checkpoint may take this share of the time; and a crash should not cost more than this long.
CHECKPOINT_SHARE = 0.05
CHECKPOINT_SECONDS = 20.0
MAX_RECOVERIES = 10
CLIENTS_PREFIX = "clients."  # of the names of clients' states in a checkpoint


class TrialRun:
    """A trial under way."""

    def __init__(
        self,
        trial: Trial,
        population: Population,
        shards: Shards,
        folder: Path,
        init_params: torch.Tensor | None = None,
    ) -> None:
        device.prepare_process()
        self.trial = trial
        self.shards = shards
        self.folder = folder
        model = models.build(trial.model, population.feature_shape, population.num_classes)
        params = model.init(trial.seed) if init_params is None else aligned(init_params)
        # The server computes where the reports are.
        self.server = Server(trial, params.to(shards.device), population.num_clients)
        self.rounds: list[Round] = []  # the history; its first entry is the initial model
        self.recoveries = 0
        self.checkpoint_seconds = 0.0  # of all checkpoints
        self._initial = self.server.state
        self._population = population
        self._num_reported = 0
        self._num_written = 0
        self._checkpoint_cost = 0.0
        self._last_checkpoint = time.monotonic()
        self._evaluations: tuple[list[NDArray[Any]], ...] = ([], [], [], [])
        self._computed_with_before: list[Arithmetic] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SETTINGS).write_text(trial.model_dump_json(indent=2))
        self._restore()
        self.num_restored = self.rounds_done

    @property
    def rounds_done(self) -> int:
        return self.server.state.round_index

    @property
    def is_finished(self) -> bool:
        return self.rounds_done == self.trial.rounds

    def advance(self, seconds: float) -> list[Round]:
        """Run rounds for about this long, at least one; the rounds not handed out before.

        The first call after a restart hands out the history too, so whoever listens can fill gaps.
        """
        end = time.monotonic() + seconds
        while not self.is_finished:
            try:
                self._add(self._next_round())
                self._checkpoint_if_due()
            except ShardError:
                self.recoveries += 1
                if self.recoveries > MAX_RECOVERIES:
                    raise
                self.shards.rebuild()
                self._restore()
            if time.monotonic() >= end:
                break
        self._write_rounds()
        news = self.rounds[self._num_reported :]
        self._num_reported = max(self._num_reported, len(self.rounds))
        return news

    def checkpoint(self) -> None:
        """Save everything that the next round needs."""
        start = time.monotonic()
        self._write_rounds()  # first: a checkpoint never is ahead of the history
        states = self.shards.export_states()
        arrays = checkpoint.flatten(self.server.state, "server")
        arrays |= checkpoint.flatten(self._client_history(), "history")
        arrays |= {f"{CLIENTS_PREFIX}{name}": array for name, array in states.items()}
        notes = {"computed_with": json.dumps(self._computed_with())}
        checkpoint.write(self.folder / CHECKPOINT, arrays, notes)
        self._last_checkpoint = time.monotonic()
        self._checkpoint_cost = self._last_checkpoint - start
        self.checkpoint_seconds += self._checkpoint_cost

    def finish(self) -> None:
        """Write the results; the checkpoint has served."""
        params = self.server.params.numpy(force=True)
        settings = {"trial": self.trial.model_dump_json()}
        checkpoint.replace(
            self.folder / MODEL,
            lambda path: save_file({"params": params}, path, metadata=settings),
        )
        for name, table in self._tables().items():
            checkpoint.replace(self.folder / name, table.to_parquet)
        result = TrialResult(
            key=self.trial.key,
            name=self.trial.name,
            rounds=self.rounds_done,
            final=self.rounds[-1].metrics,
            params_sha256=hashlib.sha256(params.tobytes()).hexdigest(),
            recoveries=self.recoveries,
            provenance=provenance(),
            computed_with=self._computed_with(),
        )
        write_result(self.folder, result)
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

    def _next_round(self) -> Round:
        """The next entry of the history."""
        number = len(self.rounds)
        evaluate_train = self.trial.is_train_evaluated(number)
        if number == 0:
            return before_training(self.server, self.shards, evaluate_train=evaluate_train)
        evaluate = self.trial.is_evaluated(number)
        one = run_round(self.server, self.shards, evaluate=evaluate, evaluate_train=evaluate_train)
        if not self.is_finished:
            return one
        tail = tail_accuracy([*self.rounds, one])
        return replace(one, metrics={**one.metrics, metrics.ACCURACY_TAIL: tail})

    def _add(self, one: Round) -> None:
        self.rounds.append(one.slim())
        if one.test is None and one.train is None:
            return
        unknown = np.full(self._population.num_clients, np.nan)
        columns = (
            np.array(one.number),
            one.test.client_loss if one.test else unknown,
            one.test.client_accuracy if one.test else unknown,
            one.train.client_loss if one.train else unknown,
        )
        for rows, column in zip(self._evaluations, columns, strict=True):
            rows.append(column)

    def _client_history(self) -> ClientHistory:
        rounds, *results = (np.array(rows) for rows in self._evaluations)
        shape = (len(rounds), self._population.num_clients)
        return ClientHistory(
            rounds.astype(np.int64),
            *(result.reshape(shape).astype(np.float32) for result in results),
        )

    def _restore(self) -> None:
        """Go back to the last checkpoint, or to the start if there is none."""
        self._evaluations = ([], [], [], [])
        self._computed_with_before = []
        self.server.state = self._initial
        arrays = self._read_checkpoint()
        if arrays:
            self.server.state = checkpoint.rebuild(self._initial, arrays, "server")
            history = checkpoint.rebuild(self._client_history(), arrays, "history")
            self._evaluations = tuple(list(column) for column in history)
        self.shards.restore_states(
            {
                name.removeprefix(CLIENTS_PREFIX): array
                for name, array in arrays.items()
                if name.startswith(CLIENTS_PREFIX)
            }
        )
        self.rounds = self._read_history()
        write_rounds(self.folder, self.rounds)
        self._num_written = len(self.rounds)
        self._last_checkpoint = time.monotonic()

    def _read_checkpoint(self) -> Arrays:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return {}
        try:
            arrays, notes = checkpoint.read(path)
        except (SafetensorError, OSError) as error:
            raise FedcomeError(
                f"{path} is damaged ({error}); delete it to start the trial anew"
            ) from None
        self._computed_with_before = json.loads(notes.get("computed_with", "[]"))
        refuse_plain(self._computed_with_before, self.folder)
        return arrays

    def _read_history(self) -> list[Round]:
        """The rounds up to the checkpoint; later ones will be written again."""
        if not self._evaluations[0]:  # the first entry always has an evaluation
            return []
        rounds = read_rounds(self.folder)[: self.rounds_done + 1]
        if [one.number for one in rounds] != list(range(self.rounds_done + 1)):
            raise FedcomeError(
                f"{self.folder / ROUNDS} is damaged: it does not have every round up to the "
                f"checkpoint's {self.rounds_done}; delete {self.folder} to start the trial anew"
            )
        return rounds

    def _checkpoint_if_due(self) -> None:
        wait = max(CHECKPOINT_SECONDS, self._checkpoint_cost / CHECKPOINT_SHARE)
        if not self.is_finished and time.monotonic() - self._last_checkpoint > wait:
            self.checkpoint()

    def _write_rounds(self) -> None:
        append_rounds(self.folder, self.rounds[self._num_written :])
        self._num_written = len(self.rounds)


def tail_accuracy(rounds: Sequence[Round]) -> float:
    """Mean test accuracy over the last tenth of the rounds: it swings less than the last one's."""
    last = rounds[-1].number
    tail = [one.metrics for one in rounds if 10 * one.number > 9 * last]
    return float(np.mean([found[metrics.ACCURACY] for found in tail if metrics.ACCURACY in found]))


def check_fits(trial: Trial, population: Population) -> Model:
    """The trial's model; refuse a model or a cohort that does not fit the population."""
    try:
        trial.cohort_size_of(population.num_clients)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return models.build(trial.model, population.feature_shape, population.num_classes)
