"""The finished trials of a request as a table, and the best settings among them."""

from pathlib import Path

from rich.console import Console

from fedcome_ray import metrics
from fedcome_ray.console.output import say
from fedcome_ray.experiments import overlay
from fedcome_ray.launch.request import Finished
from fedcome_ray.launch.summary import Reached, result_table
from fedcome_ray.trials.provenance import cautions, commits


def show_results(finished: Finished, out: Console) -> None:
    """The table of all finished trials, and what made it."""
    request = finished.request
    names = sorted({trial.data.dataset for trial in request.trials})
    rounds = sorted({trial.rounds for trial in request.trials})
    out.print(result_table(request.trials, _reached(finished)))
    say(
        out,
        f"grid {request.grid_name}, profile {request.profile}, {', '.join(names)}, "
        f"{'/'.join(map(str, rounds))} rounds, {len({t.seed for t in request.trials})} seed(s), "
        f"{len(finished.results)} of {len(request.trials)} trials, commit {_commits(finished)}",
    )
    for caution in cautions([result.computed_with for result in finished.results.values()]):
        say(out, caution, "yellow")


def _reached(finished: Finished) -> dict[str, Reached]:
    """By trial key."""
    return {
        key: Reached(100 * one.final[metrics.ACCURACY_TAIL], 100 * one.final[metrics.ACCURACY])
        for key, one in finished.results.items()
    }


def best_settings(finished: Finished) -> str:
    """The best settings of each method, as an overlay file."""
    request = finished.request
    origin = f"grid {request.grid_name}, profile {request.profile}, {_commits(finished)}"
    tails = {key: reached.tail for key, reached in _reached(finished).items()}
    return overlay.text(overlay.best(request.trials, tails), origin)


def write_best(finished: Finished, path: Path, out: Console) -> None:
    path.write_text(best_settings(finished))
    say(out, f"best       {path}, for --overlay")


def _commits(finished: Finished) -> str:
    return commits(result.provenance for result in finished.results.values())
