"""The end of a launch: what it leaves in MLflow, what is missing, where to look."""

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from fedcome_ray import metrics
from fedcome_ray.console.output import say, say_where, tell
from fedcome_ray.experiments.trial import names_among
from fedcome_ray.launch import repeat
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Finished
from fedcome_ray.launch.results import best_settings, show_results, write_best
from fedcome_ray.trials import timeline
from fedcome_ray.trials.folder import LOG


def launch_record(
    finished: Finished, outcome: Outcome
) -> tuple[dict[str, Any], dict[str, float], dict[str, str]]:
    """What the launch itself leaves in MLflow: parameters, metrics, texts."""
    params = {
        "trials": len(finished.request.trials),
        "pending": len(outcome.pending),
        "profile": finished.request.profile,
    }
    counted = {
        "launch/finished": float(len(outcome.finished)),
        "launch/failed": float(len(outcome.failures)),
        "launch/seconds_outside_rounds_per_trial": outcome.overhead,
        **{f"launch/{name}": value for name, value in outcome.phases.items()},
    }
    recorder = Console(record=True, width=160, file=io.StringIO())
    show_results(finished, recorder)
    failures = "\n".join(f"{key}: {why}" for key, why in outcome.failures.items())
    return (
        params,
        counted,
        {
            "results.txt": recorder.export_text(),
            "failures.txt": failures,
            **({"best.yaml": best_settings(finished)} if finished.request.selects else {}),
            **finished.request.made_from,
        },
    )


def conclude(finished: Finished, outcome: Outcome, out: Console) -> None:
    """Show the results, say what is missing and where to look."""
    request, extras = finished.request, finished.request.extras
    show_results(finished, out)
    names = names_among(request.trials)
    if extras.best is not None:
        write_best(finished, extras.best, out)
    if extras.trace:
        ran = [(names[trial.key], request.folder(trial)) for trial in finished.trials]
        folder = request.locations.output / "traces"
        path = timeline.write(folder, f"{request.grid_name}-{request.name}", ran)
        say(out, f"trace      {path} (for ui.perfetto.dev or chrome://tracing)")
    if outcome.finished and extras.timing:
        out.print(timing_table(outcome))
    for trial in request.trials:
        if trial.key in outcome.failures:
            why = outcome.failures[trial.key]
            log = request.locations.shown(request.folder(trial) / LOG)
            say(out, f"failed {names[trial.key]}: {why}\n  {log}", "red")
    if outcome.complaint is not None:
        tell(out, outcome.complaint, "yellow")
    if outcome.stopped:
        say(out, f"{len(outcome.stopped)} trials were stopped early: others did better")
    # What is there counts: of an interrupted launch, not all that happened was heard.
    missing = outcome.pending - finished.results.keys() - outcome.stopped
    if missing:
        say(out, f"{len(missing)} trials are not finished; the same command goes on")
        say(out, f"log        {request.log}")
    locations = request.locations
    say_where(out, locations.output, locations)
    for trial in finished.trials[:1]:  # an example
        result = finished.results[trial.key]
        again = repeat.command(request.folder(trial), result, locations, from_file=False)
        say(out, f"repeat one {again}")


def timing_table(outcome: Outcome) -> Table:
    """Where the time of the trials went."""
    table = Table(
        title="Seconds of all trials",
        caption=f"beside its rounds, a trial took {outcome.overhead:.2f} s: to start, to read its "
        f"data, to write its results",
    )
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")

    def add(name: str, seconds: float) -> None:
        table.add_row(name, f"{seconds:.1f}", f"{seconds / outcome.slot_seconds:.1%}")

    for phase, seconds in outcome.phases.items():
        if phase != metrics.SECONDS_ROUND:
            add(metrics.phase_of(phase), seconds)
    table.add_section()
    for action, seconds in outcome.outside.items():
        add(action, seconds)
    known = outcome.phases[metrics.SECONDS_ROUND] + sum(outcome.outside.values())
    add("processes start, trials change", outcome.slot_seconds - known)
    return table
