"""One experiment of an MLflow store: opening it, writing to it.

The history in a trial's folder is the truth; MLflow shows it. One experiment for each grid, one
flat run for each trial of a profile and one for each launch, told apart by the tag `fedcome.kind`.
Runs are found again by profile and trial key, and a round that one has already is not written
twice. A run is written by the launches of one output folder; those of others leave it alone while
it is under way, and complete it from their own folder if they finish the trial first.

All runs of an experiment have the same rounds as metrics: all, or every so many that the tag
`fedcome.log_every` says, and the last. The histories in their files have all of them.
"""

import fcntl
import glob
import platform
import shlex
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any

from fedcome_ray import metrics as names
from fedcome_ray.errors import UserError, without_passwords
from fedcome_ray.experiments.settings import flatten
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round
from fedcome_ray.tracking.address import SERVERS, SQLITE, check_uri, sqlite_file
from fedcome_ray.tracking.client import Client, Experiment, Point, Run, root_cause
from fedcome_ray.tracking.sqlite_client import client_of
from fedcome_ray.tracking.titles import group_tags, title
from fedcome_ray.tracking.views import saved_view_tags
from fedcome_ray.trials.folder import SETTINGS, TrialResult, read_result, read_rounds
from fedcome_ray.trials.origin import PLUGINS, read_commands
from fedcome_ray.trials.provenance import provenance

ARTIFACTS = (  # of a trial's folder, see fedcome_ray.trials.folder
    "trial.json",
    "commands.txt",
    PLUGINS,
    "rounds.jsonl",
    "clients.parquet",
    "population.parquet",
    "similarity.parquet",
    "model.safetensors",
    "result.json",
    "trial.log",
)
NOTE = "mlflow.note.content"  # the tag that MLflow's page shows as a run's description
HIGH_WATER = names.SECONDS_ROUND  # the metric that every round has
WRITER = "fedcome.writer"  # the tag that says whose run it is
LOG_EVERY = "fedcome.log_every"  # the tag that says which rounds are here, unless all are
SYSTEM = "system/"  # what the names of metrics that are taken by the clock begin with
# Without this kind, MLflow's page opens on its side for language models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development", **saved_view_tags()}


def try_open(uri: str) -> None:
    """Raise UserError unless MLflow can use the store; one that is not there yet is not made."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            is_new = uri.startswith(SQLITE) and not sqlite_file(uri).exists()
            if is_new:
                _check_can_be_made(sqlite_file(uri))
            client_of(f"{SQLITE}{scratch}/mlflow.db" if is_new else uri).look()
    except Exception as error:
        why = f"--tracking-uri: cannot use `{uri}`: {root_cause(error)}"
        raise UserError(without_passwords(why)) from error  # MLflow's errors name the address, too


def _check_can_be_made(file: Path) -> None:
    """Raise OSError where no file could be written."""
    folder = next(some for some in file.parents if some.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


def open_store(
    uri: str,
    experiment: str,
    artifacts: Path,
    tags: Mapping[str, str],
    connect: Callable[[str], Client] = client_of,
    fetch: Callable[[Path], object] = lambda folder: None,
    log_every: int | None = None,
) -> "Store":
    """The experiment, made if need be; `tags` are those of every run: `profile`, `command`...

    `fetch` brings the folder of a trial from where it is kept, before it is read. A server decides
    by itself where artifacts are kept; for other stores it is `artifacts`. Without `log_every` an
    experiment keeps the rounds that it has; a new one all.
    """
    client = connect(uri)
    try:
        with _alone_in(uri):
            if uri.startswith(SQLITE) and not sqlite_file(uri).exists():
                _make_sqlite(client, sqlite_file(uri))
            location = None if uri.startswith(SERVERS) else artifacts.as_uri()
            found = _experiment(client, experiment, location, log_every)
            own = int(found.tags.get(LOG_EVERY, "1"))
            if log_every not in {None, own}:
                raise UserError(
                    f"its experiment `{experiment}` was begun with --log-every {own}, and asked "
                    f"for is {log_every}; give {own}, or another store"
                )
    except BaseException:
        client.close()
        raise
    writer = f"{platform.node()}:{artifacts.parent}"
    return Store(client, found.id, tags, uri, writer, own, fetch)


def _experiment(
    client: Client, name: str, location: str | None, log_every: int | None
) -> Experiment:
    """Found, or made."""
    found = client.experiment_named(name)
    if found is not None:
        return found
    thinned = {} if log_every in {None, 1} else {LOG_EVERY: str(log_every)}
    try:
        return client.create_experiment(name, location, {**EXPERIMENT_TAGS, **thinned})
    except Exception:
        found = client.experiment_named(name)  # another launch may have made it meanwhile
        if found is None:
            raise
        return found


def _make_sqlite(client: Client, file: Path) -> None:
    """Whole or not at all: MLflow cannot use tables that a full disk cut short.

    Each attempt has a name of its own: MLflow would come back to a file that is gone.
    """
    new = file.with_name(f"{file.name}.new-{uuid.uuid4().hex}")
    try:
        client.make_tables(f"{SQLITE}{new}")
        new.rename(file)
    finally:
        for left in file.parent.glob(f"{glob.escape(file.name)}.new-*"):  # its journal, too
            left.unlink()


def fetch_trial(uri: str, run_id: str, folder: Path) -> None:
    """Copy what a trial can be repeated from, its settings and its plugins, out of its run."""
    check_uri(uri)
    if uri.startswith(SQLITE) and not sqlite_file(uri).exists():
        raise UserError(f"--from: there is no store `{uri}`; name it with --tracking-uri")
    client = client_of(uri)
    try:
        files = client.files(run_id)
    except Exception as error:
        raise UserError(f"--from: no run `{run_id}` in `{uri}`: {root_cause(error)}") from error
    if SETTINGS not in files:
        raise UserError(f"--from: the run `{run_id}` has no {SETTINGS}: not the run of a trial")
    folder.mkdir(parents=True, exist_ok=True)
    for name in files & {SETTINGS, PLUGINS}:
        client.download(run_id, name, str(folder))


@contextmanager
def _alone_in(uri: str) -> Iterator[None]:
    """MLflow makes its tables when a store is first opened; two processes at once ruin them."""
    if not uri.startswith(SQLITE):
        yield
        return
    lock = Path(f"{sqlite_file(uri)}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class _OpenRun:
    """The run of a trial under way."""

    id: str
    next_round: int  # the first that it does not have
    params: dict[str, Any]
    """What it lacks yet; sent with whatever is written first, as are these tags."""
    tags: dict[str, str]
    left: dict[str, float] = field(default_factory=dict)
    """What was taken by the clock in rounds that are left out, for the next that is not."""


class Store:
    """An opened experiment. Every operation may raise whatever its client raises.

    Many small trials end every second: each costs a few requests, and each of those milliseconds.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        tags: Mapping[str, str],
        uri: str,
        writer: str,
        log_every: int,
        fetch: Callable[[Path], object] = lambda folder: None,
    ) -> None:
        self.experiment_id = experiment_id
        self._log_every = log_every
        self._client = client
        self._uri = uri
        self._writer = writer
        self._fetch = fetch
        self._tags = _prefixed(tags)
        self._runs: dict[str, _OpenRun] = {}  # by trial key
        self._launch_id: str | None = None

    def close(self) -> None:
        self._client.close()

    def beside(self, client: Client) -> "Store":
        """The same experiment, for somebody else who writes other trials to it."""
        other = copy(self)
        other._client, other._runs, other._launch_id = client, {}, None
        return other

    def begin(self, trial: Trial) -> None:
        """Make sure that the trial has a run, marked as running."""
        with _alone_in(self._uri):
            if (run := self._run(trial)) is not None:
                self._log(run, (), trial.rounds)

    def log_rounds(self, trial: Trial, rounds: Iterable[Round]) -> None:
        """Write those rounds that the trial's run does not have; they come in order."""
        with _alone_in(self._uri):
            if (run := self._run(trial)) is not None:
                self._log(run, rounds, trial.rounds)

    def end(self, trial: Trial, status: str, folder: Path, told: Iterable[Round] = ()) -> None:
        """`status` is MLflow's: FINISHED, FAILED or KILLED.

        The rounds that were told, and not written yet, know what those in the folder do not: what
        was taken by the clock.
        """
        self._fetch(folder)
        with _alone_in(self._uri):
            if status == "FINISHED":
                self._complete(trial, folder, provenance, told)
            elif (run := self._run(trial)) is not None:
                self._log(run, told, trial.rounds)
                self._terminate(run, status, folder)

    def mirror(self, trial: Trial, folder: Path) -> None:
        """Copy a trial that finished in an earlier launch, unless it is here."""
        with _alone_in(self._uri):
            found = self._find_run(trial)
            if found is None or found.status != "FINISHED":
                self._fetch(folder)
                self._complete(trial, folder, lambda: _producer(folder))

    def log_launch(
        self, params: Mapping[str, Any], metrics: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """A run of its own, complete; `texts` are the contents of its files by name."""
        tags = {**self._tags, **_prefixed(provenance()), "fedcome.kind": "launch"}
        name = f"launch {self._tags['fedcome.launch']}"
        if self._launch_id is None:  # else this is another attempt
            self._launch_id = self._client.create_run(self.experiment_id, name, tags).id
        now = round(time.time() * 1000)
        points = [(metric, value, now, 0) for metric, value in metrics.items()]
        self._client.log(self._launch_id, points, params)
        for file, text in texts.items():
            self._client.log_text(self._launch_id, text, file)
        self._client.end_run(self._launch_id, "FINISHED")

    def _run(self, trial: Trial) -> _OpenRun | None:
        """The trial's run, found or made; None if it is another's."""
        if (known := self._known(trial)) is not None:
            return known
        found = self._find_run(trial) or self._create_run(trial, provenance())
        is_free = self._is_own(found) or found.status not in {"RUNNING", "FINISHED"}
        return self._claim(trial, found) if is_free else None

    def _complete(
        self,
        trial: Trial,
        folder: Path,
        producer: Callable[[], Mapping[str, str]],
        told: Iterable[Round] = (),
    ) -> None:
        """Make the run of a finished trial whole, unless another has done so.

        `producer` says what computed a trial that has no run yet.
        """
        run = self._known(trial)
        if run is None:
            found = self._find_run(trial) or self._create_run(trial, producer())
            if found.status == "FINISHED" and not self._is_own(found):
                return
            run = self._claim(trial, found)
        result, rounds = read_result(folder), {one.number: one for one in told}
        if result is None or not rounds.keys() >= {*range(run.next_round, result.rounds + 1)}:
            rounds = {one.number: one for one in read_rounds(folder)} | rounds
        last = max(rounds, default=run.next_round) if result is None else result.rounds
        self._log(run, [rounds[number] for number in sorted(rounds)], last, _arithmetic(result))
        self._terminate(run, "FINISHED", folder)

    def _known(self, trial: Trial) -> _OpenRun | None:
        """The run that this launch has claimed for the trial, if it still is its own."""
        known = self._runs.get(trial.key)
        if known is None or self._is_own(self._client.run(known.id)):
            return known
        del self._runs[trial.key]
        return None

    def _is_own(self, run: Run) -> bool:
        return run.is_there and run.tags.get(WRITER) == self._writer

    def _claim(self, trial: Trial, run: Run) -> _OpenRun:
        if not self._is_own(run):
            self._client.log(run.id, tags={WRITER: self._writer})
        if run.status != "RUNNING":
            self._client.mark_running(run.id)
        last = self._client.last_step(run.id, HIGH_WATER) if run.has_metrics else -1
        params, tags = {}, {}
        if not run.has_params:
            params = flatten(trial.model_dump(mode="json"))
            tags = {NOTE: description(run.tags["fedcome.command"], run.id, self._uri)}
        self._runs[trial.key] = _OpenRun(run.id, last + 1, params, tags)
        return self._runs[trial.key]

    def _log(
        self,
        run: _OpenRun,
        rounds: Iterable[Round],
        last: int,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Write the rounds that it does not have, and all else that it lacks, in one request.

        They come in order: none is written that is before one that the run has.
        """
        points: list[Point] = []
        left, next_round = run.left, run.next_round
        for one in rounds:
            if one.number < next_round:
                continue
            if one.number % self._log_every and one.number != last:
                left = {**left, **_by_the_clock(one)}
                continue
            found = {**left, **one.metrics, **one.seconds}
            when = round(one.time * 1000), one.number
            points += [(intern(str(name)), value, *when) for name, value in found.items()]
            left, next_round = {}, one.number + 1
        tags = {**run.tags, **(tags or {})}
        if points or run.params or tags:
            self._client.log(run.id, points, run.params, tags)
        run.left, run.next_round = left, next_round  # not before they are written
        run.params, run.tags = {}, {}

    def _terminate(self, run: _OpenRun, status: str, folder: Path) -> None:
        paths = [folder / name for name in ARTIFACTS]
        self._client.log_files(run.id, [str(path) for path in paths if path.exists()])
        self._client.end_run(run.id, status)

    def _find_run(self, trial: Trial) -> Run | None:
        """The eldest, if two launches made one at the same time."""
        profile = self._tags["fedcome.profile"]
        tags = {"fedcome.trial_key": trial.key, "fedcome.profile": profile}
        return self._client.eldest_run(self.experiment_id, tags)

    def _create_run(self, trial: Trial, producer: Mapping[str, str]) -> Run:
        tags = {
            **self._tags,
            **_prefixed(producer),
            "fedcome.kind": "trial",
            "fedcome.trial_key": trial.key,
            WRITER: self._writer,
            **({} if self._log_every == 1 else {LOG_EVERY: str(self._log_every)}),
            **group_tags(trial),
            "mlflow.source.name": "fedcome_ray",
            "mlflow.source.git.commit": producer["commit"],
        }
        run = self._client.create_run(self.experiment_id, title(trial), tags)
        if self._uri.startswith(SQLITE):
            return run  # files have a lock: nobody made another meanwhile
        eldest = self._find_run(trial) or run
        if eldest.id != run.id:
            self._client.delete_run(run.id)
        return eldest


def _by_the_clock(one: Round) -> dict[str, float]:
    return {name: value for name, value in one.metrics.items() if name.startswith(SYSTEM)}


def _arithmetic(result: TrialResult | None) -> dict[str, str]:
    """What a finished trial was computed with; several values where its processes differ."""
    records = result.computed_with if result is not None else []
    parts = dict.fromkeys(part for record in records for part in record)
    return {
        f"fedcome.arithmetic.{part}": " | ".join({record[part]: None for record in records})
        for part in parts
    }


def _producer(folder: Path) -> Mapping[str, str]:
    """What computed the result in a trial's folder, and the command that began it."""
    result, commands = read_result(folder), read_commands(folder)
    produced = provenance() if result is None else result.provenance
    return {**produced, "command": commands[0] if commands else "unknown"}


def description(command: str, run_id: str, uri: str) -> str:
    """What MLflow's page shows of a trial first: what made it, and how to make it again."""
    again = f"python -m fedcome_ray.run --from {run_id} --output again"
    store = f"--tracking-uri {shlex.quote(without_passwords(uri))}"
    says = "Made by the first, repeated by the second:"  # short, or the page folds it
    return f"{says}\n\n    {command}\n    {again} \\\n        {store}"


def _prefixed(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"fedcome.{name}": value for name, value in tags.items()}
