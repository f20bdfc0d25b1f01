"""What the end of a launch says and leaves."""

import errno
import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from fedcome_ray import metrics
from fedcome_ray.console.options import Locations
from fedcome_ray.errors import StorageError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import Round
from fedcome_ray.launch.conclusion import conclude, launch_record
from fedcome_ray.launch.outcome import Outcome
from fedcome_ray.launch.request import Extras, Finished, Request
from fedcome_ray.launch.results import show_results, write_best
from fedcome_ray.trials.folder import write_rounds
from tests.finished import ARITHMETIC, finish

TRIALS = [parse_trial({"rounds": 2, "seed": seed}) for seed in (0, 1)]


def finished_of(tmp_path: Path, **extras: bool) -> Finished:
    """The first of two trials is finished."""
    locations = Locations(tmp_path, tracking_uri="")
    request = Request("some", "quick", TRIALS, locations, extras=Extras(**extras), name="now")
    finish(TRIALS[0], request.folder(TRIALS[0]), accuracy=0.75)
    return Finished.read(request)


def said(finished: Finished, outcome: Outcome) -> str:
    out = Console(file=io.StringIO(), width=160)
    conclude(finished, outcome, out)
    return str(out.file.getvalue())  # type: ignore[attr-defined]


def test_what_is_finished_is_read_once_and_known(tmp_path: Path) -> None:
    finished = finished_of(tmp_path)
    assert finished.trials == TRIALS[:1]
    assert finished.pending == TRIALS[1:]


def test_results_come_first_and_time_is_shown_only_if_asked_for(tmp_path: Path) -> None:
    text = said(
        finished_of(tmp_path), Outcome({one.key for one in TRIALS}, finished={TRIALS[0].key})
    )
    assert text.startswith("Test accuracy")
    assert text.count("Test accuracy") == 1
    assert "beside its rounds" not in text


def test_missing_trials_are_counted_and_the_log_is_named(tmp_path: Path) -> None:
    interrupted = Outcome({one.key for one in TRIALS})  # before it was heard of the first
    text = said(finished_of(tmp_path), interrupted)
    assert "1 trials are not finished; the same command goes on" in text
    assert "logs/now.log" in text


def test_failures_are_named_with_cause_and_log(tmp_path: Path) -> None:
    outcome = Outcome({TRIALS[1].key}, failures={TRIALS[1].key: "it diverged"})
    text = said(finished_of(tmp_path), outcome)
    assert "failed fedavg-digits-p1-random-s1: it diverged" in text
    assert "trial.log" in text


def test_the_complaint_of_the_store_is_passed_on(tmp_path: Path) -> None:
    assert "MLflow: gone" in said(finished_of(tmp_path), Outcome(complaint="MLflow: gone"))


def test_the_timeline_is_written_where_it_is_said(tmp_path: Path) -> None:
    finished = finished_of(tmp_path, trace=True)
    seconds = {metrics.SECONDS_ROUND: 0.5}
    write_rounds(finished.request.folder(TRIALS[0]), [Round(0, (1,), {}, seconds, 9.0)])
    path = tmp_path / "traces" / "some-now.json"
    assert str(path) in said(finished, Outcome())
    assert json.loads(path.read_text())["traceEvents"]


def test_the_timing_shares_add_up(tmp_path: Path) -> None:
    outcome = Outcome({TRIALS[0].key}, finished={TRIALS[0].key}, slot_seconds=10.0)
    outcome.phases |= {"seconds/train": 6.0, metrics.SECONDS_ROUND: 6.0}
    outcome.outside["start"] = 1.0
    text = said(finished_of(tmp_path, timing=True), outcome)
    assert "a trial took 4.00 s: to start" in " ".join(text.split())
    for row in ("train", "60.0%", "start", "10.0%", "processes start, trials change", "30.0%"):
        assert row in text


def test_a_launch_leaves_its_results_and_counts(tmp_path: Path) -> None:
    outcome = Outcome(
        {one.key for one in TRIALS}, finished={TRIALS[0].key}, failures={TRIALS[1].key: "why"}
    )
    params, counted, texts = launch_record(finished_of(tmp_path), outcome)
    assert params == {"trials": 2, "pending": 2, "profile": "quick"}
    assert counted["launch/finished"] == counted["launch/failed"] == 1
    assert "75.0 75.0" in texts["results.txt"]
    assert texts["failures.txt"] == f"{TRIALS[1].key}: why"


@pytest.mark.parametrize(("cpu", "warns"), [("one", False), ("two", True)])
def test_the_table_warns_of_results_that_were_computed_differently(
    cpu: str, warns: bool, tmp_path: Path
) -> None:
    finished = finished_of(tmp_path)
    other = [{**ARITHMETIC, "cpu": cpu}]
    finish(TRIALS[1], finished.request.folder(TRIALS[1]), computed_with=other)
    out = Console(file=io.StringIO(), width=300)
    show_results(Finished.read(finished.request), out)
    text = str(out.file.getvalue())  # type: ignore[attr-defined]
    assert ("not all computed alike (cpu: one | two)" in text) == warns


def test_the_best_settings_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, out = finished_of(tmp_path), Console(file=io.StringIO())
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "best.yaml").write_text("old")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "own" / "best.yaml")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"best.yaml: No space left"):
            write_best(finished, tmp_path / "link.yaml", out)
    assert (tmp_path / "own" / "best.yaml").read_text() == "old"
    write_best(finished, tmp_path / "link.yaml", out)
    assert (tmp_path / "own" / "best.yaml").read_text() != "old"
    assert len(list((tmp_path / "own").iterdir())) == 1


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
