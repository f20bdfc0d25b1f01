"""Runs the rounds of a trial and keeps its folder up to date.

A folder can be continued by any process at any time. Rounds after the last checkpoint are repeated
and, since rounds are pure functions of the state, come out the same.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcome_ray import methods, metrics, models, samplers
from fedcome_ray.clients.company import computed_with
from fedcome_ray.datasets.population import Population, form_of
from fedcome_ray.errors import AwayError, ConfigError, FedcomeError, ShardError, UserError, cut
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round, before_training, run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import Shards
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.models.model import Model
from fedcome_ray.numerics import device
from fedcome_ray.numerics.arrays import Arrays, aligned
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.samplers.table import DenseTable
from fedcome_ray.storage.remote import patiently
from fedcome_ray.storage.working_copy import WorkingCopy
from fedcome_ray.trials import checkpoint
from fedcome_ray.trials.folder import (
    CHECKPOINT,
    CLIENTS,
    MODEL,
    POPULATION,
    ROUNDS,
    ROUNDS_DONE,
    SETTINGS,
    SIMILARITY,
    TrialResult,
    append_rounds,
    checksums,
    has_checkpoint,
    history_checksum,
    keep_beginnings,
    log_incident,
    read_rounds,
    write_result,
    write_rounds,
)
from fedcome_ray.trials.provenance import provenance, refuse_plain
from fedcome_ray.trials.tables import (
    ClientHistory,
    client_table,
    population_table,
    saving,
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
        kept: WorkingCopy | None = None,
    ) -> None:
        """`kept` is the folder as the working copy of a storage, if it is one."""
        device.prepare_process()
        self.trial = trial
        self.shards = shards
        self.folder = folder
        self._kept = kept
        model = models.build(trial.model, *form_of(population))
        params = model.init(trial.seed) if init_params is None else aligned(init_params)
        # The server computes where the reports are.
        self.server = Server(trial, params.to(shards.device), population.num_clients)
        self.rounds: list[Round] = []  # the history; its first entry is the initial model
        self.recoveries = 0
        self._incidents: list[str] = []  # not told yet
        self.checkpoint_seconds = 0.0  # of all checkpoints
        self._initial = self.server.state
        self._population = population
        self._num_reported = 0
        self._num_written = 0
        self._checkpoint_cost = 0.0
        self._last_checkpoint = time.monotonic()
        self._evaluations: tuple[list[NDArray[Any]], ...] = tuple([] for _ in ClientHistory._fields)
        self._unknown = np.full(population.num_clients, np.nan, np.float32)  # not evaluated
        self._computed_with_before: list[Arithmetic] = []
        folder.mkdir(parents=True, exist_ok=True)
        settings = trial.model_dump_json(indent=2)
        checkpoint.replace(
            folder / SETTINGS,
            lambda path: path.write_text(settings),
            is_kept=has_checkpoint(folder),  # else with the first
        )
        self._restore()
        self.num_restored = self.rounds_done

    @property
    def rounds_done(self) -> int:
        return self.server.state.round_index

    @property
    def is_finished(self) -> bool:
        return is_over(self.trial, self.rounds)

    def advance(self, seconds: float, pause_after: int | None = None) -> list[Round]:
        """Run rounds for about this long, at least one; the rounds not handed out before.

        When `pause_after` rounds are done no further one is begun.

        The first call after a restart hands out the history too, so whoever listens can fill gaps.
        """
        end = time.monotonic() + seconds
        while not self.is_finished and self.rounds_done != pause_after:
            try:
                self._add(self._next_round())
                self._checkpoint_if_due()
            except ShardError as error:
                self._recover(error)
            if time.monotonic() >= end:
                break
        self._write_rounds()
        news = self.rounds[self._num_reported :]
        self._num_reported = max(self._num_reported, len(self.rounds))
        return news

    def _recover(self, error: ShardError) -> None:
        """Go back to the last checkpoint with new shards, which may die meanwhile, too."""
        while True:
            self.recoveries += 1
            if self.recoveries > MAX_RECOVERIES:
                raise error
            lost = self.rounds_done
            try:
                self.shards.rebuild()
                self._restore()
            except ShardError as another:
                error = another
                continue
            why = cut(str(error).splitlines()[0])  # Ray has much to say of an actor
            words = f"{why}; replaced, and back from round {lost} to {self.rounds_done}"
            self._incidents.append(words)
            log_incident(self.folder, words)
            return

    def take_incidents(self) -> list[str]:
        """What it has survived since the last call."""
        told, self._incidents = self._incidents, []
        return told

    def checkpoint(self) -> None:
        """Save everything that the next round needs, here and in the storage if there is one."""
        start = time.monotonic()
        try:
            self._write_checkpoint()
            if self._kept is not None:
                self._kept.push()
        finally:
            self._last_checkpoint = time.monotonic()
            self._checkpoint_cost = self._last_checkpoint - start
            self.checkpoint_seconds += self._checkpoint_cost

    def _write_checkpoint(self) -> None:
        self._write_rounds()  # first: a checkpoint never is ahead of the history
        keep_beginnings(self.folder)
        states = self.shards.export_states()
        arrays = checkpoint.flatten(self.server.state, "server")
        arrays |= checkpoint.flatten(self._client_history(), "history")
        arrays |= {f"{CLIENTS_PREFIX}{name}": array for name, array in states.items()}
        with checkpoint.writing(self.folder / ROUNDS):  # of which the checksum is read back
            history = history_checksum(self.folder)
        notes = {
            "computed_with": json.dumps(self._computed_with()),
            "history": history,
            ROUNDS_DONE: str(self.rounds_done),
        }
        checkpoint.write(self.folder / CHECKPOINT, arrays, notes)

    def finish(self) -> None:
        """Write the results; the checkpoint has served."""
        params = self.server.params.numpy(force=True)
        settings = {"trial": self.trial.model_dump_json()}
        files = {MODEL: checkpoint.saving({"params": params}, settings)}
        files |= {name: saving(table) for name, table in self._tables().items()}
        checkpoint.replace_all({self.folder / name: save for name, save in files.items()})
        keep_beginnings(self.folder)
        result = TrialResult(
            key=self.trial.key,
            name=self.trial.name,
            rounds=self.rounds_done,
            final=self.rounds[-1].metrics,
            params_sha256=hashlib.sha256(params.tobytes()).hexdigest(),
            recoveries=self.recoveries,
            provenance=provenance(),
            computed_with=self._computed_with(),
            checksums=checksums(self.folder),
        )
        write_result(self.folder, result)
        (self.folder / CHECKPOINT).unlink(missing_ok=True)
        if self._kept is not None:
            patiently(self._kept.push)

    def _computed_with(self) -> list[Arithmetic]:
        """What server and shards computed with, here and before, each kind of process once."""
        here = [computed_with(device.CPU), *self.shards.computed_with()]
        found = [*self._computed_with_before, *here]
        return [one for number, one in enumerate(found) if one not in found[:number]]

    def _tables(self) -> dict[str, Any]:
        sampler = self.server.state.sampler
        tables = {
            CLIENTS: client_table(self._client_history()),
            POPULATION: population_table(self._population),
        }
        if isinstance(sampler, DenseTable):
            tables[SIMILARITY] = similarity_table(sampler)
        return tables

    def _next_round(self) -> Round:
        """The next entry of the history."""
        number = len(self.rounds)
        evaluate_train = self.trial.is_train_evaluated(number)
        evaluate_personally = self.trial.is_personally_evaluated(number)
        if number == 0:
            one = before_training(
                self.server,
                self.shards,
                evaluate_train=evaluate_train,
                evaluate_personally=evaluate_personally,
            )
        else:
            one = run_round(
                self.server,
                self.shards,
                evaluate=self.trial.is_evaluated(number),
                evaluate_train=evaluate_train,
                evaluate_personally=evaluate_personally,
            )
        found = {metrics.TOTAL_BYTES: total_bytes(self.rounds, one)}
        if is_over(self.trial, [*self.rounds, one]):
            found[metrics.ACCURACY_TAIL] = tail_accuracy([*self.rounds, one])
        return replace(one, metrics={**one.metrics, **found})

    def _add(self, one: Round) -> None:
        self.rounds.append(one.slim())
        if one.test is None and one.train is None:
            return
        found = (
            one.test.client_loss if one.test else None,
            one.test.client_accuracy if one.test else None,
            one.train.client_loss if one.train else None,
            one.personal.client_loss if one.personal else None,
            one.personal.client_accuracy if one.personal else None,
        )
        results = (self._unknown if own is None else own.astype(np.float32) for own in found)
        for rows, column in zip(self._evaluations, (np.array(one.number), *results), strict=True):
            rows.append(column)

    def _client_history(self) -> ClientHistory:
        rounds, *results = (np.array(rows) for rows in self._evaluations)
        shape = (len(rounds), self._population.num_clients)
        return ClientHistory(
            rounds.astype(np.int64),
            *(result.reshape(shape).astype(np.float32, copy=False) for result in results),
        )

    def _restore(self) -> None:
        """Go back to the last checkpoint, or to the start if there is none."""
        self._evaluations = tuple([] for _ in ClientHistory._fields)
        self._computed_with_before = []
        self.server.state = self._initial
        arrays, notes = self._read_checkpoint()
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
        self.rounds = self._read_history(notes.get("history"))
        if (self.folder / ROUNDS).exists():
            write_rounds(self.folder, self.rounds)
        self._num_written = len(self.rounds)
        self._last_checkpoint = time.monotonic()

    def _read_checkpoint(self) -> tuple[Arrays, dict[str, str]]:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return {}, {}
        try:
            arrays, notes = checkpoint.read(path)
        except checkpoint.DAMAGE as error:
            raise FedcomeError(
                f"{path} is damaged ({error}); delete it to start the trial anew"
            ) from None
        self._computed_with_before = json.loads(notes.get("computed_with", "[]"))
        refuse_plain(self._computed_with_before, self.folder)
        return arrays, notes

    def _read_history(self, noted: str | None) -> list[Round]:
        """The rounds up to the checkpoint, which notes their checksum; later ones are repeated."""
        if not self._evaluations[0]:  # the first entry always has an evaluation
            return []
        number = self.rounds_done + 1
        rounds = read_rounds(self.folder, number)
        is_changed = noted not in {None, history_checksum(self.folder, number)}
        if is_changed or [one.number for one in rounds] != list(range(number)):
            raise FedcomeError(
                f"{self.folder / ROUNDS} is damaged: it does not have the rounds up to the "
                f"checkpoint's {self.rounds_done}; delete {self.folder} to start the trial anew"
            )
        return rounds

    def _checkpoint_if_due(self) -> None:
        wait = max(CHECKPOINT_SECONDS, self._checkpoint_cost / CHECKPOINT_SHARE)
        if not self.is_finished and time.monotonic() - self._last_checkpoint > wait:
            with suppress(AwayError):  # the next one is sent again, the end of the trial insists
                self.checkpoint()

    def _write_rounds(self) -> None:
        append_rounds(self.folder, self.rounds[self._num_written :])
        self._num_written = len(self.rounds)


def is_over(trial: Trial, rounds: Sequence[Round]) -> bool:
    """Whether the last of these rounds, which begin with the initial model, is the trial's last."""
    if not rounds:
        return False
    if rounds[-1].number == trial.rounds or trial.stop is None:
        return rounds[-1].number == trial.rounds
    name = trial.stop.metric
    return trial.stop.is_reached([one.metrics[name] for one in rounds if name in one.metrics])


def total_bytes(before: Sequence[Round], one: Round) -> float:
    """What was sent, both ways, in a round and all before it."""
    own = one.metrics[metrics.UP_BYTES] + one.metrics[metrics.DOWN_BYTES]
    return own + (before[-1].metrics[metrics.TOTAL_BYTES] if before else 0.0)


def tail_accuracy(rounds: Sequence[Round]) -> float:
    """Mean test accuracy over the last tenth of the rounds: it swings less than the last one's."""
    last = rounds[-1].number
    tail = [one.metrics for one in rounds if 10 * one.number > 9 * last]
    return float(np.mean([found[metrics.ACCURACY] for found in tail if metrics.ACCURACY in found]))


def check_fits(
    trial: Trial, population: Population, init_params: torch.Tensor | None = None
) -> None:
    """Refuse a cohort, a model or a start that do not fit, and plugins that break a contract."""
    if not population.test.num_examples:
        held_out = "; `data.validation` holds out none of a client that has only one"
        has_validation = trial.data.validation is not None
        raise ConfigError(
            f"data: no client has an example to be tested on{held_out if has_validation else ''}"
        )
    try:
        trial.cohort_size_of(population.num_clients)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    methods.build(trial.method)
    samplers.build(trial.sampler)
    model = models.build(trial.model, *form_of(population))
    if population.feature_dtype.kind == "i":
        _check_vocabulary(trial, model, population)
    if (init_params is None) != (trial.init_digest is None):
        raise UserError("init_digest: a trial that starts from a file is run with --init-model")
    if init_params is not None and init_params.shape != (model.dim,):
        raise UserError(
            f"--init-model: the file has params of shape {list(init_params.shape)}, "
            f"the model `{name_of(trial.model)}` needs [{model.dim}]"
        )


def _check_vocabulary(trial: Trial, model: Model, population: Population) -> None:
    """Refuse tokens that the model has no place for, which only an attempt can tell."""
    sides = [population.side(name).examples.x for name in ("train", "test")]
    for extreme in (min(x.min() for x in sides), max(x.max() for x in sides)):
        x = torch.full((1, *population.feature_shape), int(extreme))
        try:
            model.logits(model.init(0), x)
        except IndexError:
            raise ConfigError(
                f"model: `{name_of(trial.model)}` does not know the token {extreme}, which is in "
                f"the data; does it have a setting for how many there are?"
            ) from None
