"""What all grids are said to cost; running them is tested end to end."""

import json
from typing import Any

import pytest
import torch

from fedcome_ray import reproduce
from fedcome_ray.launch import cost
from fedcome_ray.numerics import device

DRY_RUN = ["--dry-run", "--json", "--quiet", "--only", "heterogeneity", "--only", "fairness"]
GPU = torch.device("cuda", 0)


@pytest.fixture
def tried_on(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that are calibrated, on a machine with two GPUs."""
    found: list[torch.device] = []
    monkeypatch.setattr(device, "usable_gpus", lambda: [device.Gpu("a card", 2**35)] * 2)
    monkeypatch.setattr(device, "pick", lambda share: GPU)
    monkeypatch.setattr(cost, "_seconds_per_example", lambda *given: found.append(given[-1]) or 1.0)
    monkeypatch.setattr(cost, "_seconds_of_a_tiny_round", lambda on: found.append(on) or 1.0)
    return found


@pytest.mark.parametrize(
    ("words", "where", "gpus"),
    [
        ([], GPU, 2),
        (["--device", "gpu"], GPU, 2),
        (["--device", "cpu"], device.CPU, 0),
        (["--gpus-per-shard", "0"], device.CPU, 0),
        (["--cpus", "64"], device.CPU, 0),
    ],
)
def test_the_cost_is_calibrated_where_trials_would_compute(
    words: list[str], where: torch.device, gpus: int, tried_on: list[torch.device], capsys: Any
) -> None:
    assert reproduce.main([*DRY_RUN, *words]) == 0
    assert set(tried_on) == {where}
    assert json.loads(capsys.readouterr().out)["gpus"] == gpus


def test_a_cluster_of_cpus_and_a_wish_for_gpus_contradict_each_other(
    tried_on: list[torch.device], capsys: Any
) -> None:
    assert reproduce.main([*DRY_RUN, "--cpus", "64", "--device", "gpu"]) == 2
    assert "--cpus: got `64`, but trials are to compute on GPUs" in capsys.readouterr().err
    assert not tried_on
