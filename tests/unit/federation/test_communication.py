"""Bytes are those of the published table, for every method, cohort and number of shards."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedcome_ray import datasets, methods, metrics, models
from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards

FLOAT = 4  # bytes
DIM = 64 * 8 + 8 + 8 * 10 + 10  # of the model below
COSTS = re.compile(r"(\d+), (\d+)( and the loss)?")


def documented() -> dict[str, tuple[int, int]]:
    """Floats that a client is sent, and sends, by method: from the tables of docs/methods.md."""
    text = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in text.splitlines() if re.match(r"\| `\w+` ", row)]
    found = {}
    for row in rows:
        cost = COSTS.match(row[4].strip())
        assert cost is not None, row
        down, up, loss = cost.groups()
        found[row[1].strip(" `")] = int(down) * DIM, int(up) * DIM + (loss is not None)
    return found


def sent(method: str, **settings: Any) -> tuple[float, float]:
    """The bytes of a round, down and up."""
    shards = settings.pop("num_shards", 1)
    trial = parse_trial(
        {
            "method": {"name": method},
            "data": {"dataset": "digits", "num_clients": 12, "partition": {"name": "dirichlet"}},
            "model": {"name": "mlp", "hidden": [8]},
            **settings,
        }
    )
    population = datasets.load(trial.data)
    params = models.build(trial.model, population.feature_shape, 10).init(seed=0)
    assert len(params) == DIM
    server = Server(trial, params, 12)
    found = run_round(server, LocalShards(trial, population, shards), evaluate=False).metrics
    return found[metrics.DOWN_BYTES], found[metrics.UP_BYTES]


@pytest.mark.parametrize("method", methods.REGISTRY)
@pytest.mark.parametrize("cohort", [1, 5])
def test_every_method_sends_what_its_documentation_says(method: str, cohort: int) -> None:
    down, up = documented()[method]
    assert sent(method, cohort_size=cohort) == (cohort * FLOAT * down, cohort * FLOAT * up)


def test_shards_samplers_and_local_work_cost_no_communication() -> None:
    plain = sent("feddc", cohort_size=6)
    assert plain == sent("feddc", cohort_size=6, num_shards=3)
    assert plain == sent("feddc", cohort_size=6, sampler={"name": "similarity"})
    assert plain == sent("feddc", cohort_size=6, local={"epochs": 2, "batch_size": 7})
