"""Populations whose examples nobody keeps give the bits of those that are kept."""

from typing import Any

import numpy as np
import pytest
import torch

from fedcome_ray import datasets, models
from fedcome_ray.datasets import synthetic
from fedcome_ray.datasets.population import Population, form_of
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round, run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.numerics import device
from fedcome_ray.trials.tables import population_table

CONFIG = datasets.Synthetic(num_clients=60, examples_per_client=30)


def two_rounds(trial: Trial, population: Population, num_shards: int) -> tuple[torch.Tensor, Round]:
    device.prepare_process()
    shards = LocalShards(trial, population, num_shards)
    model = models.build(trial.model, *form_of(population))
    server = Server(trial, model.init(0), population.num_clients)
    run_round(server, shards)
    last = run_round(server, shards, evaluate_train=True, evaluate_personally=True)
    return server.params, last


@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"name": "scaffold"}},
        {"method": {"name": "qffl"}},
        {"method": {"name": "local"}},
        {"method": {"name": "centralised"}},
        {"method": {"name": "fedavg"}, "sampler": {"name": "power_of_choice"}},
    ],
)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_rounds_are_those_of_kept_examples(settings: dict[str, Any], num_shards: int) -> None:
    others = {"cohort_size": 12, "eval_train_every": 1, "eval_personal_epochs": 1}
    if settings["method"]["name"] == "centralised":
        others = {"eval_train_every": 1, "eval_personal_epochs": 1}
    data = {"data": CONFIG.model_dump(), "model": {"name": "logistic"}}
    trial = parse_trial({**data, **settings, **others})
    params, last = two_rounds(trial, synthetic.kept(CONFIG), 1)
    again, last_again = two_rounds(trial, synthetic.drawn(CONFIG), num_shards)
    assert torch.equal(params, again)
    assert last.metrics == last_again.metrics
    for one, other in ((last.test, last_again.test), (last.personal, last_again.personal)):
        assert one is not None
        assert other is not None
        assert np.array_equal(one.client_loss, other.client_loss)


def test_the_table_of_a_drawn_population_does_not_know_classes() -> None:
    kept, drawn = (population_table(one(CONFIG)) for one in (synthetic.kept, synthetic.drawn))
    assert drawn["classes"].null_count == len(drawn)
    assert kept["num_train"].equals(drawn["num_train"])
