"""Our federation against plain restatements of every method, on real data with unequal clients.

Full batches make local training free of chance, cohorts are those that our server draws: after ten
rounds the params must be the same numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedcome_ray import datasets, methods, models
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.methods.pcgrad import random_orders
from tests.unit.methods import restatements
from tests.unit.methods.restatements import World

Restatement = Callable[..., NDArray[np.float64]]
HIDDEN, NUM_ROUNDS = 16, 10

# name, settings of ours, the restatement, its settings where they are called otherwise
CASES: list[tuple[str, dict[str, Any], Restatement, dict[str, Any]]] = [
    ("fedavg", {"server_lr": 1.5}, restatements.fedavg, {}),
    ("fedprox", {"mu": 0.1}, restatements.fedprox, {}),
    ("scaffold", {"server_lr": 0.8}, restatements.scaffold, {}),
    ("feddyn", {"alpha": 0.1}, restatements.feddyn, {}),
    ("fedfv", {"alpha": 0.5, "tau": 1, "window": "include_current"}, restatements.fedfv, {}),
    ("fedfv", {"alpha": 0.1, "tau": 3, "window": "include_current"}, restatements.fedfv, {}),
    ("fedfv", {"alpha": 0.0, "tau": 3, "window": "past_only"}, restatements.fedfv, {}),
    ("feddc", {"alpha": 0.1}, restatements.feddc, {}),
    ("fedcome", {"weights": "samples"}, restatements.fedcome, {}),
    ("fedcome", {"weights": "uniform"}, restatements.fedcome, {}),
    ("fednova", {}, restatements.fednova, {}),
    ("fedadam", {}, restatements.fedopt, {"kind": "adam"}),
    ("fedyogi", {}, restatements.fedopt, {"kind": "yogi"}),
    ("qffl", {"q": 1.5, "lipschitz": 2.0}, restatements.q_fedavg, {}),
    ("fedmgda_plus", {"epsilon": 0.2, "server_lr": 0.7}, restatements.fedmgda_plus, {}),
    ("dualproj", {}, restatements.dualproj, {}),
    ("pcgrad", {}, restatements.pcgrad, {"orders": partial(random_orders, 0)}),
    ("mgda", {}, restatements.mgda, {}),
    ("cagrad", {"c": 0.5}, restatements.cagrad, {}),
    ("imtl_g", {}, restatements.imtl_g, {}),
    ("nash_mtl", {}, restatements.fairgrad, {}),
    ("fairgrad", {"alpha": 0.7}, restatements.fairgrad, {}),
    ("fairgrad", {"alpha": 2.0}, restatements.fairgrad, {}),
    ("aligned_mtl", {}, restatements.aligned_mtl, {}),
    ("con_fig", {}, restatements.con_fig, {}),
    ("fedgh", {}, restatements.fedgh, {}),
    ("fedmdfg", {"theta": 11.25}, restatements.fedmdfg, {}),
    ("fedmdfg", {"theta": 80.0}, restatements.fedmdfg, {}),
]


def trial_of(method: dict[str, Any]) -> Trial:
    return parse_trial(
        {
            "method": method,
            "data": {"dataset": "digits", "num_clients": 8, "partition": {"name": "dirichlet"}},
            "model": {"name": "mlp", "hidden": [HIDDEN]},
            "local": {"lr": 0.3, "lr_decay": 0.9, "epochs": 3, "batch_size": None},
            "cohort_size": 4,
            "rounds": NUM_ROUNDS,
        }
    )


@pytest.fixture(scope="module")
def population() -> Population:
    population = datasets.load(trial_of({"name": "fedavg"}).data)
    assert len(set(population.train.sizes.tolist())) > 4
    return population


@pytest.fixture(scope="module")
def world(population: Population) -> World:
    examples, order, offsets, _ = population.train
    x = torch.from_numpy(examples.x).double().flatten(1)
    y = torch.from_numpy(examples.y)
    network = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)).double()
    own = [order[offsets[i] : offsets[i + 1]] for i in range(population.num_clients)]
    return World([(x[i], y[i]) for i in own], network, num_steps=3, weight_decay=1e-3)


def test_every_method_is_restated() -> None:
    references = set(methods.REFERENCES)  # see test_references.py
    assert {name for name, *_ in CASES} == set(methods.REGISTRY) - references


@pytest.mark.parametrize(
    ("name", "settings", "restatement", "other_settings"),
    CASES,
    ids=[f"{name}-{number}" for number, (name, *_) in enumerate(CASES)],
)
def test_ten_rounds_give_the_same_params(
    name: str,
    settings: dict[str, Any],
    restatement: Restatement,
    other_settings: dict[str, Any],
    population: Population,
    world: World,
) -> None:
    trial = trial_of({"name": name, **settings})
    start = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    server, shards = Server(trial, start, population.num_clients), LocalShards(trial, population, 2)
    records = [run_round(server, shards, evaluate=False) for _ in range(NUM_ROUNDS)]

    rounds = [(record.cohort, 0.3 * 0.9 ** (record.number - 1)) for record in records]
    begin = start.double().numpy()
    expected = restatement(world, begin, rounds, **settings, **other_settings)

    error = np.linalg.norm(server.params.double().numpy() - expected)
    assert error <= 1e-5 * np.linalg.norm(expected)
    assert np.linalg.norm(expected - begin) > 0.1 * np.linalg.norm(begin), "it hardly moved"
