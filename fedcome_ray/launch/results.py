"""The finished trials of a request as a table, and the best settings among them."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median

from rich.console import Console

from fedcome_ray import metrics
from fedcome_ray.console.output import say, tell
from fedcome_ray.experiments import overlay
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.launch.request import Finished
from fedcome_ray.launch.summary import Reached, accuracy_table, cost_table
from fedcome_ray.trials.checkpoint import replace
from fedcome_ray.trials.folder import read_rounds
from fedcome_ray.trials.provenance import cautions, commits


def show_results(finished: Finished, out: Console) -> None:
    """The table of all finished trials, and what made it."""
    request = finished.request
    names = sorted({trial.data.dataset for trial in request.trials})
    rounds = sorted({trial.rounds for trial in request.trials})
    if request.measure == "cost":
        out.print(cost_table(request.trials, _seconds(finished)))
    else:
        out.print(accuracy_table(request.trials, _reached(finished)))
    seeds = len({trial.seed for trial in request.trials})
    tell(
        out,
        f"{', '.join(names)}, {'/'.join(map(str, rounds))} rounds, {seeds} seed(s), "
        f"{len(finished.results)} of {len(request.trials)} trials",
    )
    tell(
        out,
        f"grid {request.grid_name}, profile {request.profile}, commit {_commits(finished)}",
    )
    computed_with = [result.computed_with for result in finished.results.values()]
    for caution in [*stop_cautions(request.trials), *cautions(computed_with)]:
        tell(out, caution, "yellow")


def stop_cautions(trials: Iterable[Trial]) -> list[str]:
    """What a reader should know of trials that watch the examples they are judged by."""
    if not any(trial.stops_by_test for trial in trials):
        return []
    return [
        "stop: watches the test examples, so these results are partly chosen by them; "
        "data.validation=0.1 holds examples out to watch instead"
    ]


def _reached(finished: Finished) -> dict[str, Reached]:
    """By trial key."""
    rounds = {trial.key: trial.rounds for trial in finished.trials}
    return {
        key: Reached(
            100 * one.final[metrics.ACCURACY_TAIL],
            100 * one.final[metrics.ACCURACY],
            one.rounds if one.rounds < rounds[key] else None,
        )
        for key, one in finished.results.items()
    }


def _seconds(finished: Finished) -> dict[str, float]:
    """What a round of each trial took, by trial key."""
    rounds = {trial.key: read_rounds(finished.request.folder(trial)) for trial in finished.trials}
    return {
        key: median(one.seconds[metrics.SECONDS_ROUND] for one in own if one.number > 0)
        for key, own in rounds.items()
    }


def best_settings(finished: Finished) -> str:
    """The best settings of each method, as an overlay file."""
    request, commit = finished.request, _commits(finished)
    origin = f"grid {request.grid_name}, profile {request.profile}, commit {commit}"
    tails = {key: one.final[metrics.ACCURACY_TAIL] for key, one in finished.results.items()}
    return overlay.text(overlay.best(request.trials, tails, commit), origin)


def write_best(finished: Finished, path: Path, out: Console) -> None:
    """As a whole or not at all: half an overlay would be one, too."""
    text = best_settings(finished)
    replace(path.resolve(), lambda own: own.write_text(text, encoding="utf-8"))
    say(out, f"best       {path}, for --overlay")


def _commits(finished: Finished) -> str:
    return commits(result.provenance for result in finished.results.values())
