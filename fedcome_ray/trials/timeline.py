"""A timeline of rounds for Perfetto or Chrome, from the histories of trials."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcome_ray import metrics
from fedcome_ray.federation.round import Round
from fedcome_ray.trials.folder import read_rounds

MICROSECONDS = 1_000_000


def write(folder: Path, name: str, trials: Sequence[tuple[str, Path]]) -> Path:
    """Write the rounds of trials, given by name and folder, as one timeline; where it is."""
    events: list[dict[str, Any]] = []
    for number, (trial, history) in enumerate(trials):
        events.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": trial}})
        for one in read_rounds(history):
            events += _events(one, number)
    folder.mkdir(parents=True, exist_ok=True)
    # The launches of one search share their name.
    names = (f"{name}.json", *(f"{name}-{number}.json" for number in range(2, 10_000)))
    path = next(folder / file for file in names if not (folder / file).exists())
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def _events(one: Round, process: int) -> list[dict[str, Any]]:
    """A round and its phases, which follow each other and end when the round did."""
    phases = dict(one.seconds)
    duration = phases.pop(metrics.SECONDS_ROUND)
    start = one.time - duration
    spans = [(f"round {one.number}", start, duration)]
    for name, seconds in phases.items():
        spans.append((metrics.phase_of(name), start, seconds))
        start += seconds
    return [
        {
            "name": name,
            "ph": "X",
            "pid": process,
            "tid": 0,
            "ts": begin * MICROSECONDS,
            "dur": seconds * MICROSECONDS,
        }
        for name, begin, seconds in spans
    ]
