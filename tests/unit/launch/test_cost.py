"""What trials are said to cost."""

import time
from pathlib import Path
from typing import Any

from fedcome_ray import datasets
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.launch.cost import Cost, calibrate, cost_words, estimate
from fedcome_ray.runtime.placement import Node, place
from fedcome_ray.trials.run import TrialRun


def trial_of(**settings: Any) -> Any:
    return parse_trial({"model": {"name": "logistic"}, "rounds": 10, **settings})


def estimated(*trials: Trial) -> Cost:
    return estimate(trials, calibrate(trials, lambda text: None))


def test_the_cost_counts_rounds_and_client_updates() -> None:
    cost = estimated(trial_of(cohort_size=5), trial_of(participation=0.5, seed=1))
    assert cost.rounds == 20
    assert cost.client_updates == 10 * 5 + 10 * 25
    assert cost.disk_bytes > 2 * 4 * (64 + 1) * 10


def test_more_rounds_cost_more() -> None:
    short, long = (estimated(trial_of(rounds=rounds)) for rounds in (100, 100_000))
    assert 0 < short.cpu_seconds < long.cpu_seconds


def test_all_that_is_evaluated_costs() -> None:
    plain, also_train = trial_of(rounds=1000), trial_of(rounds=1000, eval_train_every=1)
    rates = calibrate([plain], lambda text: None)
    assert estimate([plain], rates).cpu_seconds < estimate([also_train], rates).cpu_seconds


def test_a_tiny_trial_is_said_to_cost_what_its_rounds_do(tmp_path: Path) -> None:
    """Several times more or less would be no help; a busy machine may well be twice as slow."""
    trial = trial_of(rounds=300, cohort_size=2)
    population = datasets.load(trial.data)
    run = TrialRun(trial, population, LocalShards(trial, population), tmp_path)
    start = time.process_time()
    while not run.is_finished:
        run.advance(1.0)
    took = time.process_time() - start
    assert took / 4 < estimated(trial).cpu_seconds < 8 * took


def test_nothing_costs_nothing() -> None:
    assert estimated() == (0, 0, 0, 0, 0)


def test_every_kind_of_work_is_tried_once_and_said_before() -> None:
    told: list[str] = []
    trials = [
        trial_of(),
        trial_of(seed=1),
        trial_of(method={"name": "scaffold"}),
        trial_of(model={"name": "mlp"}),
    ]
    assert len(calibrate(trials, told.append).per_example) == 3
    assert told == [
        "calibrating 1 of 3: logistic on digits, fedavg",
        "calibrating 2 of 3: logistic on digits, scaffold",
        "calibrating 3 of 3: mlp on digits, fedavg",
    ]


def test_the_words_say_the_cost() -> None:
    cost = Cost(1000, 20_000, 7200.0, 5_000_000, 0)
    said = cost_words(cost, place(MachineOptions(num_shards=1), 56, [Node("a-host", 4)]))
    assert said.startswith("1,000 rounds, 20,000 client updates: about 0:30:00 on 4 cores")
    gpus = [Node("a-host", 16, 2, 2**35)]
    assert "about 1:00:00 on 2 GPU(s)" in cost_words(cost, place(MachineOptions(), 56, gpus))
