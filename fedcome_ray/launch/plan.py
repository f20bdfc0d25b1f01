"""A launch that might be: its trials, in full or by their axes, and what they would cost."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from fedcome_ray.console.output import Talk, doing, say, tell
from fedcome_ray.experiments.trial import Trial, names_among
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import cost, document
from fedcome_ray.launch.request import Finished, Request
from fedcome_ray.launch.summary import axes_of
from fedcome_ray.launch.work import words_of
from fedcome_ray.numerics import device
from fedcome_ray.runtime import placement

FEW = 20
"""Trials that are listed one by one; more are summed up unless that is asked for."""


def show_plan(request: Request, talk: Talk, *, all_trials: bool = False) -> None:
    """Trials, placement and cost; nothing is started."""
    out, progress = talk.results(), talk.progress()
    finished = Finished.read(request)
    machine = request.machine
    if machine.wants_gpus and machine.address is None:
        device.wished("gpu")  # or it is refused, as the launch would be
    here = placement.place(machine, len(finished.pending) or 1, [placement.this_machine(machine)])
    on = device.pick(here.trial.gpus_per_shard)
    rates = cost.calibrate(finished.pending, lambda text: doing(progress, text), on)
    total = cost.estimate(finished.pending, rates)
    axes = axes_of(request.trials)
    talk.document(document.of_plan(finished, axes, here, total))
    if all_trials or len(request.trials) <= FEW:
        out.print(trials_table(finished))
    else:
        show_axes(request.trials, axes, out)
    say(out, words_of(finished))
    if len(request.trials) > FEW:
        out.print(cost_by_part(finished.pending, rates, cost.workers_of(here).kind))
    tell(out, placement.words(here))
    tell(out, cost.cost_words(total, here))


def show_axes(trials: Sequence[Trial], axes: Mapping[str, Sequence[str]], out: Console) -> None:
    """What varies, with its values."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("axis", no_wrap=True)
    table.add_column("values")
    for name, values in axes.items():
        table.add_row(name, ", ".join(shortened(values)))
    out.print(table)
    say(out, f"(all {len(trials)} trials: --list-trials)")


def trials_table(finished: Finished) -> Table:
    """The trials, one line each."""
    trials, begun = finished.request.trials, finished.begun
    states = dict.fromkeys(finished.results, "finished")
    states |= {key: f"round {rounds + 1}" for key, rounds in begun.items()}
    names = names_among(trials)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("key", no_wrap=True)
    table.add_column("trial", overflow="fold")
    if states:
        table.add_column("state", no_wrap=True)
    for trial in trials:
        state = [states.get(trial.key, "")] if states else []
        table.add_row(trial.key, names[trial.key], *state)
    return table


def shortened(values: Sequence[str]) -> list[str]:
    """Many settings of few things as their numbers: `fedprox (3 settings)`."""
    if len(values) <= FEW:
        return list(values)
    counts = Counter(value.partition("(")[0] for value in values)
    return [f"{name} ({count} settings)" if count > 1 else name for name, count in counts.items()]


def cost_by_part(trials: Sequence[Trial], rates: cost.Rates, kind: str) -> Table:
    """What the trials of each dataset cost, or with one dataset those of each method."""
    is_one_dataset = len({trial.data.dataset for trial in trials}) == 1
    parts: dict[str, list[Trial]] = {}
    for trial in trials:
        part = name_of(trial.method) if is_one_dataset else trial.data.dataset
        parts.setdefault(part, []).append(trial)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("method" if is_one_dataset else "dataset")
    for heading in ("trials", "rounds", f"{kind} time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for part, some in parts.items():
        own = cost.estimate(some, rates)
        table.add_row(part, str(len(some)), f"{own.rounds:,}", cost.time_words(own.cpu_seconds))
    return table
