"""A timeline of rounds for Perfetto or Chrome, from the histories of trials."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcome_ray.trials.run import Line, read_lines

MICROSECONDS = 1_000_000


def write(folder: Path, name: str, trials: Sequence[tuple[str, Path]]) -> Path:
    """Write the rounds of trials, given by name and folder, as one timeline; where it is."""
    events: list[dict[str, Any]] = []
    for number, (trial, history) in enumerate(trials):
        events.append({"name": "process_name", "ph": "M", "pid": number, "args": {"name": trial}})
        for line in read_lines(history):
            events += _events(line, number)
    folder.mkdir(parents=True, exist_ok=True)
    # The launches of one search share their name.
    names = (f"{name}.json", *(f"{name}-{number}.json" for number in range(2, 10_000)))
    path = next(folder / file for file in names if not (folder / file).exists())
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def _events(line: Line, process: int) -> list[dict[str, Any]]:
    """A round and its phases, which follow each other and end when the line was written."""
    phases = {name.removeprefix("seconds/"): value for name, value in line["seconds"].items()}
    duration = phases.pop("round")
    start = line["time"] - duration
    spans = [(f"round {line['round']}", start, duration)]
    for phase, seconds in phases.items():
        spans.append((phase, start, seconds))
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
