"""What `--json` prints. Keys may be added; those there are stay."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcome_ray.errors import without_passwords
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.launch.cost import Cost
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.runtime.placement import Placement
from fedcome_ray.trials.folder import TrialResult, read_result

Document = dict[str, Any]


def of_trial(
    trial: Trial, folder: Path, state: str, rounds_done: int, result: TrialResult | None = None
) -> Document:
    """One trial; `state` is finished, failed, stopped, begun or waiting."""
    return {
        "key": trial.key,
        "name": trial.name,
        "folder": str(folder),
        "state": state,
        "rounds_done": rounds_done,
        "settings": trial.model_dump(mode="json"),
        "final": None if result is None else result.final,
        "commit": None if result is None else result.provenance["commit"],
        "failure": None,
    }


def of_run(trial: Trial, folder: Path, *, was_finished: bool, tracking_uri: str) -> Document:
    """A trial on its own, which has just ended or was finished before."""
    result = read_result(folder)
    assert result is not None
    own = of_trial(trial, folder, "finished", result.rounds, result)
    return {**own, "was_finished": was_finished, "tracking_uri": without_passwords(tracking_uri)}


def of_launch(finished: Finished, outcome: Outcome) -> Document:
    """A launch that is over."""
    request = finished.request
    return {
        **_of_request(request, _trials(finished, outcome)),
        "was_interrupted": outcome.is_interrupted,
        "complaint": outcome.complaint,
        "best": None if request.extras.best is None else str(request.extras.best),
    }


def of_plan(
    finished: Finished, axes: Mapping[str, Sequence[Any]], placement: Placement, cost: Cost
) -> Document:
    """A launch that might be: nothing is started."""
    place = placement.trial
    return {
        **_of_request(finished.request, _trials(finished, Outcome())),
        "axes": {name: list(values) for name, values in axes.items()},
        "placement": {
            "trials_at_once": placement.concurrent,
            "shards_per_trial": place.num_shards,
            "cpus_per_shard": place.cpus_per_shard,
            "gpus_per_shard": place.gpus_per_shard,
        },
        "cost": of_cost(cost),
    }


def of_cost(cost: Cost) -> Document:
    return dict(cost._asdict())


def _of_request(request: Request, trials: list[Document]) -> Document:
    states = [trial["state"] for trial in trials]
    return {
        "grid": request.grid_name,
        "profile": request.profile,
        "launch": request.name,
        "output": request.locations.shown(request.locations.output),
        "tracking_uri": without_passwords(request.locations.tracking_uri),
        "counts": {state: states.count(state) for state in dict.fromkeys(states)},
        "trials": trials,
    }


def _trials(finished: Finished, outcome: Outcome) -> list[Document]:
    return [_of_any(trial, finished, outcome) for trial in finished.request.trials]


def _of_any(trial: Trial, finished: Finished, outcome: Outcome) -> Document:
    folder, key = finished.request.folder(trial), trial.key
    if key in finished.results:
        result = finished.results[key]
        return of_trial(trial, folder, "finished", result.rounds, result)
    rounds_done = finished.begun.get(key, 0)
    if key in outcome.failures:
        failed = of_trial(trial, folder, "failed", rounds_done)
        return {**failed, "failure": outcome.failures[key]}
    if key in outcome.stopped:
        return of_trial(trial, folder, "stopped", rounds_done)
    return of_trial(trial, folder, "begun" if rounds_done else "waiting", rounds_done)
