"""The timeline of rounds."""

import json
from pathlib import Path

import pytest

from fedcome_ray.trials import timeline as trace


def test_phases_follow_each_other_and_end_with_their_round(tmp_path: Path) -> None:
    seconds = {"seconds/sample": 0.5, "seconds/train": 2.0, "seconds/round": 2.5}
    line = {"round": 7, "time": 100.0, "metrics": {}, "seconds": seconds, "cohort": [1]}
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "rounds.jsonl").write_text(json.dumps(line) + "\n")
    path = trace.write(tmp_path / "traces", "t", [("same name", f) for f in folders])
    events = json.loads(path.read_text())["traceEvents"]
    own = [event for event in events if event["pid"] == 1 and event["ph"] == "X"]
    spans = [(event["name"], event["ts"] / 1e6, event["dur"] / 1e6) for event in own]
    assert spans == [
        ("round 7", pytest.approx(97.5), pytest.approx(2.5)),
        ("sample", pytest.approx(97.5), pytest.approx(0.5)),
        ("train", pytest.approx(98.0), pytest.approx(2.0)),
    ]
    assert {event["pid"] for event in events} == {0, 1}
