"""What a dry run shows, on 80 columns."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.console.output import Talk
from fedcome_ray.errors import UserError
from fedcome_ray.experiments import grid
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import name_of
from fedcome_ray.launch import cost, plan
from fedcome_ray.launch.plan import FEW, shortened, show_plan
from fedcome_ray.launch.request import Request
from fedcome_ray.runtime.placement import Node
from tests.finished import finish

Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """The plan of some trials, at a speed that needs no calibration."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(cost, "_seconds_per_example", lambda *arguments: 1e-3)

    def show(trials: list[Trial], *, all_trials: bool = False, num_finished: int = 0) -> str:
        request = Request("some", "quick", trials, Locations(tmp_path, tracking_uri=""))
        for trial in trials[:num_finished]:
            finish(trial, request.folder(trial))
        stdout = io.StringIO()
        show_plan(request, Talk(quiet=True, stdout=stdout), all_trials=all_trials)
        return stdout.getvalue()

    return show


def trials_of(name: str, profile: str = "quick") -> list[Trial]:
    return grid.expand(grid.load(name), profile)


@pytest.mark.parametrize("all_trials", [False, True])
@pytest.mark.parametrize("profile", ["quick", "paper"])
@pytest.mark.parametrize("name", grid.grid_names())
def test_the_plans_of_our_grids_fit_80_columns(
    name: str, profile: str, all_trials: bool, show: Show
) -> None:
    trials = trials_of(name, profile)
    text = show(trials, all_trials=all_trials)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    is_listed = all_trials or len(trials) <= FEW
    assert all((trial.key in text) == is_listed for trial in trials)
    assert len(text.splitlines()) < 35 or is_listed


def test_trials_that_would_compute_on_a_gpu_are_calibrated_there(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_on = []
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(plan.placement, "this_machine", lambda _: Node("a-host", 16, 2, 2**35))
    monkeypatch.setattr(plan.device, "pick", lambda share: gpu if share else None)
    monkeypatch.setattr(
        cost, "_seconds_per_example", lambda *given: tried_on.append(given[-1]) or 1
    )
    monkeypatch.setattr(cost, "_seconds_of_a_tiny_round", lambda on: tried_on.append(on) or 1)
    text = show(trials_of("partial_participation"))
    assert set(tried_on) == {gpu}
    assert "GPU time" in text
    assert "on 2 GPU(s)" in " ".join(text.split())


def test_a_plan_for_gpus_that_are_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan.device, "usable_gpus", list)
    where = Locations(tmp_path, tracking_uri="")
    request = Request("some", "quick", [], where, MachineOptions(device="gpu"))
    with pytest.raises(UserError, match="--device: no GPU to compute on"):
        show_plan(request, Talk(quiet=True))


def test_many_trials_are_summed_up_by_their_axes_and_their_cost(show: Show) -> None:
    trials = trials_of("partial_participation")
    text = show(trials)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "sampler similarity, random" in lines
    assert "participation 0.1, 0.2, 0.3, 0.4" in lines
    assert any(
        line.startswith("method fedavg, fedprox, scaffold, feddyn, fedfv,") for line in lines
    )
    assert f"{len(trials)} trials to run" in lines
    (row,) = [line for line in lines if line.startswith("scaffold ")]
    own = [trial.rounds for trial in trials if name_of(trial.method) == "scaffold"]
    assert row.split()[1:3] == [str(len(own)), f"{sum(own):,}"]


def test_several_datasets_are_summed_up_by_dataset(show: Show) -> None:
    lines = [line.split() for line in show(trials_of("full_participation", "paper")).splitlines()]
    assert [line[:2] for line in lines if line[:1] in (["mnist"], ["cifar100"])] == [
        ["mnist", "21"],
        ["cifar100", "21"],
    ]


def test_there_is_a_column_of_states_only_if_there_are_states(show: Show) -> None:
    trials = trials_of("scaling")
    assert "state" not in show(trials)
    text = show(trials, num_finished=2)
    assert text.count("finished") == 3
    assert "2 finished, 4 to run" in text


def test_many_settings_of_few_methods_are_counted() -> None:
    values = ["fedavg", *(f"fedprox(mu={number})" for number in range(FEW))]
    assert shortened(values) == ["fedavg", f"fedprox ({FEW} settings)"]
    assert shortened(values[:3]) == values[:3]


def test_a_plan_for_programs_has_all_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "_seconds_per_example", lambda *arguments: 1e-3)
    trials = trials_of("sensitivity")
    stdout = io.StringIO()
    request = Request("some", "quick", trials, Locations(tmp_path, tracking_uri=""))
    show_plan(request, Talk(json=True, stdout=stdout))
    found = json.loads(stdout.getvalue())
    assert [trial["key"] for trial in found["trials"]] == [trial.key for trial in trials]
    assert "calibrating 1 of 1" in capsys.readouterr().err
