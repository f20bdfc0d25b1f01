"""Methods that remember, in a real federation: unequal clients, several shards, small batches."""

from itertools import chain

import numpy as np
import pytest

from fedcome_ray import datasets, models
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards


@pytest.mark.parametrize(
    ("name", "kept_by_server", "kept_by_clients"),
    [
        ("scaffold", "control", "control"),
        ("feddyn", "correction", "gradient"),
        ("feddc", "gradient", "gradient"),
        ("feddc", "drift", "drift"),
    ],
)
def test_the_server_knows_the_mean_of_states_it_never_sees(
    name: str, kept_by_server: str, kept_by_clients: str
) -> None:
    trial = parse_trial(
        {
            "method": {"name": name},
            "data": {"dataset": "digits", "num_clients": 12, "partition": {"name": "dirichlet"}},
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"batch_size": 16, "lr": 0.1},
            "cohort_size": 3,
        }
    )
    population = datasets.load(trial.data)
    params = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    server, shards = Server(trial, params, 12), LocalShards(trial, population, num_shards=3)
    cohorts = [run_round(server, shards, evaluate=False).cohort for _ in range(4)]

    exported = [shard.states.export() for shard in shards.shards]
    clients = np.concatenate([states["ids"] for states in exported])
    assert set(clients.tolist()) == set(chain(*cohorts)), "states of those who took part, no others"
    total = np.concatenate([states[kept_by_clients] for states in exported]).sum(0)
    kept = getattr(server.state.method, kept_by_server).numpy()
    np.testing.assert_allclose(kept, total / 12, rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(kept) > 1e-4
