"""The references against plain PyTorch: clients that train alone, and everybody's examples."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

from fedcome_ray import metrics
from fedcome_ray.clients.rehearsal import random_population
from fedcome_ray.datasets.population import Split
from fedcome_ray.errors import ConfigError
from fedcome_ray.experiments.trial import Trial, parse_trial
from fedcome_ray.federation.round import Round, before_training, run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.trials.run import TrialRun
from tests import plain_torch

SIZES = (9, 20, 4, 12, 7, 5)
FEATURES, CLASSES = 6, 3
POPULATION = random_population(SIZES, (FEATURES,), CLASSES)
DECAY = {"weight_decay": 0.01, "lr": 0.5, "lr_decay": 0.9}


def trial_of(method: str, batch_size: Any = "full", **settings: Any) -> Trial:
    local = {**DECAY, "batch_size": batch_size, **settings.pop("local", {})}
    base = {"model": {"name": "logistic"}, "method": {"name": method}, "local": local}
    return parse_trial({**base, **settings})


def rounds(trial: Trial, number: int, num_shards: int = 1) -> tuple[Server, list[Round]]:
    shards = LocalShards(trial, POPULATION, num_shards)
    server = Server(trial, shards.shards[0].model.init(trial.seed), len(SIZES))
    first = before_training(server, shards, evaluate_train=True)
    return server, [first, *(run_round(server, shards, evaluate_train=True) for _ in range(number))]


def examples_of(split: Split, *clients: int) -> tuple[Tensor, Tensor]:
    own = np.concatenate([split.order[split.offsets[c] : split.offsets[c + 1]] for c in clients])
    return torch.from_numpy(split.examples.x[own]), torch.from_numpy(split.examples.y[own])


@torch.no_grad()
def loss_of(params: Tensor, client: int) -> float:
    module = plain_torch.logistic(FEATURES, CLASSES)
    vector_to_parameters(params.clone(), module.parameters())
    x, y = examples_of(POPULATION.test, client)
    return float(functional.cross_entropy(module(x), y))


def trained(params: Tensor, round_index: int, *clients: int) -> Tensor:
    """One step on all examples of these clients."""
    module = plain_torch.logistic(FEATURES, CLASSES)
    lr = DECAY["lr"] * DECAY["lr_decay"] ** round_index
    batch = examples_of(POPULATION.train, *clients)
    return plain_torch.train(module, params, [batch], lr, DECAY["weight_decay"])


@pytest.mark.parametrize("cohort_size", [2, 6])
@pytest.mark.parametrize("momentum", [0.0, 0.5])  # of a single step nothing, but another loop
def test_alone_every_client_goes_on_where_it_was(cohort_size: int, momentum: float) -> None:
    trial = trial_of("local", cohort_size=cohort_size, local={"momentum": momentum})
    server, found = rounds(trial, 8)
    own = [server.params] * len(SIZES)
    for index, one in enumerate(found[1:]):
        for client in one.cohort:
            own[client] = trained(own[client], index, client)
        assert one.test is not None
        assert one.train is not None
        losses = [loss_of(params, client) for client, params in enumerate(own)]
        np.testing.assert_allclose(one.test.client_loss, losses, rtol=1e-5)
        np.testing.assert_allclose(one.train.client_loss, losses, rtol=1e-5)  # the same examples
    assert found[-1].metrics[metrics.LOSS] < found[0].metrics[metrics.LOSS]


def test_alone_after_training_for_the_test_is_another_step_of_ones_own() -> None:
    trial = trial_of("local", eval_personal_epochs=1, local={"lr_decay": 1.0})
    shards = LocalShards(trial, POPULATION)
    server = Server(trial, shards.shards[0].model.init(0), len(SIZES))
    one = run_round(server, shards, evaluate_personally=True)
    two = run_round(server, shards)
    assert one.personal is not None
    assert two.test is not None
    np.testing.assert_allclose(one.personal.client_loss, two.test.client_loss, rtol=1e-5)


def test_pooled_examples_are_trained_on_as_if_they_were_one_clients() -> None:
    everybody = range(len(SIZES))
    server, found = rounds(trial_of("centralised", batch_size=sum(SIZES)), 5)
    params = rounds(trial_of("centralised", batch_size=1), 0)[0].params
    for index in range(5):
        params = trained(params, index, *everybody)
    np.testing.assert_allclose(server.params, params, rtol=1e-4, atol=1e-6)
    assert found[-1].test is not None
    losses = [loss_of(params, client) for client in everybody]
    np.testing.assert_allclose(found[-1].test.client_loss, losses, rtol=1e-4)


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    batch_size=st.integers(1, 70),
    length=st.sampled_from([{"epochs": 1}, {"epochs": 5}, {"steps": 1}, {"steps": 30}]),
    share=st.floats(0.05, 1),
)
def test_a_pooled_round_sees_as_many_examples_as_a_cohort(sizes, batch_size, length, share) -> None:
    trial = trial_of("centralised", batch_size=batch_size, local=length, participation=share)
    steps = trial.pooled_steps(np.array(sizes))
    cohort = max(1, round(share * len(sizes)))
    epochs = [length.get("epochs") or length["steps"] / -(-size // batch_size) for size in sizes]
    wanted = cohort * float(np.mean([e * size for e, size in zip(epochs, sizes, strict=True)]))
    per_step = sum(sizes) / -(-sum(sizes) // batch_size)
    assert steps >= 1
    assert steps == 1 or abs(steps * per_step - wanted) <= per_step / 2 + 1e-6


def test_an_epoch_of_everybody_is_an_epoch_of_the_pool() -> None:
    assert trial_of("centralised", batch_size=10).pooled_steps(np.array(SIZES)) == 6  # of 57


@pytest.mark.parametrize("method", ["local", "centralised"])
@pytest.mark.parametrize("local", [{}, {"momentum": 0.5, "clip_norm": 0.5}])
def test_references_do_not_depend_on_shards_or_interruptions(
    method: str, local: dict[str, float], tmp_path: Path
) -> None:
    trial = trial_of(
        method, 4, cohort_size=2, rounds=8, local=local, eval_train_every=1, eval_personal_epochs=1
    )

    def history(num_shards: int, interrupted_after: int) -> tuple[Any, ...]:
        for _ in range(2):
            shards = LocalShards(trial, POPULATION, num_shards)
            run = TrialRun(trial, POPULATION, shards, tmp_path / str(num_shards))
            while run.rounds_done < interrupted_after:
                run.advance(0)
            run.checkpoint()
        run.advance(60)
        return run.server.params.tolist(), [(one.cohort, one.metrics) for one in run.rounds]

    undisturbed = history(1, interrupted_after=0)
    losses = [found[metrics.LOSS] for _, found in undisturbed[1]]
    assert len(set(losses)) == len(losses), "something is learnt in every round"
    assert history(3, interrupted_after=4) == undisturbed


def test_who_trains_alone_trains_in_the_rounds_of_a_federation() -> None:
    settings = {"cohort_size": 2, "availability": {"rate": 0.5}}
    alone, federated = (rounds(trial_of(name, **settings), 12)[1] for name in ("local", "fedavg"))
    assert [one.cohort for one in alone] == [one.cohort for one in federated]


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        ("local", {"sampler": {"name": "similarity"}}, "must be `random`, got `similarity`"),
        ("centralised", {"sampler": {"name": "divfl"}}, "must be `random`, got `divfl`"),
        ("centralised", {"batch_size": "full"}, "a number as `local.batch_size`, got `full`"),
        ("centralised", {"availability": {"rate": 0.5}}, "leave `availability` out"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(method, settings, says) -> None:
    with pytest.raises(ConfigError) as raised:
        trial_of(method, **{"batch_size": 4, **settings})
    assert says in str(raised.value)
    assert f"method `{method}`" in str(raised.value)
    assert "\n" not in str(raised.value)
