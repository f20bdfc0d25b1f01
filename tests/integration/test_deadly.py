"""A trial that kills its process fails alone, whoever shares the process with it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcome_ray import api, methods

pytestmark = [
    pytest.mark.ray,
    # Tune's, Ray's and MLflow's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

PLUGIN = """
import os
import sys
from dataclasses import replace
from typing import Literal

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import fedavg
from fedcome_ray.methods.method import Method


class Deadly(Hyperparameters):
    name: Literal["deadly"] = "deadly"
    number: int = 0


def build(hp: Deadly) -> Method:
    plain = fedavg.build(fedavg.FedAvg())

    def aggregate(server, cohort, report):
        if hp.number == 2 and "default_worker" in sys.argv[0]:  # Ray's, not the launch's
            os._exit(1)
        return plain.aggregate(server, cohort, report)

    return replace(plain, aggregate=aggregate)
"""
NAME = "deadly"
NUMBERS = range(8)  # the first turn has several of them


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / f"{NAME}.py"
    path.write_text(PLUGIN)
    yield path
    del sys.modules[f"fedcome_ray_plugin_{NAME}"], methods.REGISTRY[NAME]


@pytest.mark.usefixtures("cluster")
def test_a_trial_that_kills_its_process_fails_and_those_of_the_same_turn_do_not(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcome_ray.launch.tune_run.MAX_DEATHS", 1)
    results = api.run_grid(
        set={"method.name": NAME, "rounds": 2},
        axes={"method.number": NUMBERS},
        output=tmp_path / "output",
        plugins=[plugin],
        max_concurrent=1,
    )
    (why,) = results.failures.values()
    assert "its process died more than 1 times" in why
    finished = {
        json.loads((result.parent / "trial.json").read_text())["method"]["number"]
        for result in tmp_path.glob("output/trials/*/result.json")
    }
    assert finished == {*NUMBERS} - {2}
