"""A launch: the pending trials of a request, run, tracked and summed up."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from fedcome_ray import datasets
from fedcome_ray.console.options import Locations
from fedcome_ray.console.output import doing, say
from fedcome_ray.datasets.population import Population, describe
from fedcome_ray.importing import large_modules
from fedcome_ray.launch import compiling
from fedcome_ray.launch.conclusion import launch_record
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.launch.work import words_of
from fedcome_ray.storage.lease import Lease, held
from fedcome_ray.tracking.address import check_uri
from fedcome_ray.tracking.tracker import Tracker
from fedcome_ray.tracking.trackers import Once, Trackers, most_trackers
from fedcome_ray.trials.folder import TRIALS, exclusive, is_lasting
from fedcome_ray.trials.memory import check_memory
from fedcome_ray.trials.origin import command_line
from fedcome_ray.trials.run import check_fits


def launch(request: Request, console: Console) -> Outcome:
    """Run what is not finished; `conclude` shows what came of it."""
    locations = request.locations
    check_cluster(request.machine.address)
    check_uri(locations.tracking_uri)
    populations = load_populations(request, console)
    # One launch at a time: its driver is the only writer of the default store, which is SQLite.
    with exclusive(locations.output, patience=0), writing_to(locations, console) as lease:
        before = Finished.read(request)
        tags = {
            "grid": request.grid_name,
            "profile": request.profile,
            "launch": request.name,
            "command": command_line(),
        }
        artifacts = locations.output / "artifacts"
        uri = locations.tracking_uri
        make_tracker = partial(
            Tracker,
            uri,
            request.grid_name,
            artifacts,
            tags,
            Once(partial(doing, console)),
            fetch=partial(fetch, locations),
            log_every=locations.log_every,
        )
        with Trackers(make_tracker, most_trackers(uri)) as tracker:
            for trial in before.trials:
                tracker.mirror(trial, request.folder(trial))
            outcome = _run(request, before, populations, tracker, console, lease)
            # If nothing came of it, what ails the trials may well ail the store: a full disk.
            tracker.is_patient = bool(outcome.finished) or not outcome.failures
            if tracker.is_patient:
                tracker.check_open()
            after = Finished.read(request) if outcome.pending else before
            tracker.launch_ended(*launch_record(after, outcome))
    outcome.complaint = tracker.complaint
    return outcome


@contextmanager
def writing_to(locations: Locations, console: Console) -> Iterator[Lease | None]:
    """Be the only launch that writes to the storage, if results are kept in one."""
    if locations.storage is None:
        yield None
        return
    with held(locations.storage, locations.output, partial(say, console)) as lease:
        yield lease


def fetch(locations: Locations, folder: Path) -> None:
    """Bring what lasts of a trial's folder from the storage, if there is one."""
    if (copy := locations.working_copy) is not None:
        copy.pull(f"{TRIALS}/{folder.name}", is_lasting)


def check_cluster(address: str | None) -> None:
    """Refuse an address at which nothing listens, before anything long starts."""
    if address is not None:
        from fedcome_ray.runtime.connection import check_address  # imports Ray

        check_address(address)


def load_populations(request: Request, console: Console) -> dict[str, Population]:
    """The population of each data configuration; what does not fit is found before Ray starts."""
    populations: dict[str, Population] = {}
    told: set[str] = set()
    for trial in request.trials:
        key = trial.data.model_dump_json()
        if key not in populations:
            if trial.data.dataset not in told:
                told.add(trial.data.dataset)
                doing(console, f"loading {trial.data.dataset}")
            populations[key] = datasets.load(trial.data, request.locations.data_dir)
        check_fits(trial, populations[key], request.init_params)
        if request.machine.address is None:  # else its nodes may have more than this one
            check_memory(trial, describe(populations[key]))
    return populations


def _run(
    request: Request,
    before: Finished,
    populations: dict[str, Population],
    tracker: Trackers,
    console: Console,
    lease: Lease | None,
) -> Outcome:
    if not before.pending:
        return Outcome()
    if "ray" not in sys.modules:
        doing(console, "loading Ray")  # slower than starting it, with MLflow in the background
    with large_modules():
        from fedcome_ray.runtime.connection import begun, connected

    with begun(request.machine):
        with large_modules():  # takes longer than Ray to start
            from fedcome_ray.launch.tune_run import run_trials

        with connected(request.machine, console):
            say(console, words_of(before))
            if compiling.is_due(before.pending):
                doing(console, "compiling, once")
            return run_trials(request, before.pending, populations, tracker, console, lease)
