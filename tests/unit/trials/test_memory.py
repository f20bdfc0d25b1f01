"""What a trial holds in memory, without allocating any of it."""

from typing import Any

import pytest

from fedcome_ray import datasets
from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.trials.memory import check_memory, memory_of

HUGE = 10**12


def test_examples_and_reports_are_counted_in_float32() -> None:
    trial = parse_trial({"model": {"name": "logistic"}, "cohort_size": 7})
    own = memory_of(trial, datasets.describe(trial.data))
    assert own.examples == 1797 * 64 * 4
    assert own.reports == 2 * 7 * (64 + 1) * 10 * 4


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"model": {"name": "mlp", "hidden": [HUGE]}}, "model, local.epochs"),
        ({"model": {"name": "mlp", "hidden": [10**6, 10**6]}}, "model, local.epochs"),
        ({"local": {"epochs": HUGE}}, "model, local.epochs"),
        ({"rounds": HUGE}, "rounds"),
    ],
)
def test_a_trial_that_no_machine_holds_is_refused(settings: dict[str, Any], field: str) -> None:
    trial = parse_trial(settings)
    with pytest.raises(ConfigError, match=rf"{field}: .* would take about [\d,]+ GB of memory"):
        check_memory(trial, datasets.describe(trial.data))


@pytest.mark.parametrize(
    "data",
    [
        {"dataset": "synthetic", "num_clients": 10**12},
        {"dataset": "synthetic", "num_features": 10**9},
        {"dataset": "synthetic", "num_classes": 10**12},
        {"dataset": "synthetic", "examples_per_client": 10**12},
    ],
)
def test_examples_that_no_machine_holds_are_not_drawn(data: dict[str, Any]) -> None:
    config = parse_trial({"data": data}).data
    for make in (datasets.describe, datasets.load):
        with pytest.raises(ConfigError, match=r"num_features.* would take about [\d,]+ GB"):
            make(config)
