"""Rounds in which some, or all, of those who were asked are not there, and rounds that diverge."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray import methods
from fedcome_ray.clients.rehearsal import random_population
from fedcome_ray.errors import DivergenceError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import Round, run_round
from fedcome_ray.federation.server import ROUNDING, Server, num_opposed
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.methods.method import Report
from fedcome_ray.trials.run import TrialRun

SIZES = (9, 20, 4, 12, 7, 5)
POPULATION = random_population(SIZES, (6,), 3)


def trial_of(**settings: Any) -> Trial:
    base = {"model": {"name": "logistic"}, "cohort_size": 2, "local": {"batch_size": 4}}
    return Trial.model_validate({**base, **settings})


def federation(trial: Trial, num_shards: int = 1) -> tuple[Server, LocalShards]:
    shards = LocalShards(trial, POPULATION, num_shards)
    return Server(trial, shards.shards[0].model.init(0), len(SIZES)), shards


def rounds(trial: Trial, count: int, num_shards: int = 1) -> list[Round]:
    server, shards = federation(trial, num_shards)
    return [run_round(server, shards) for _ in range(count)]


def test_the_absent_are_those_who_were_sampled_and_are_not_in_the_cohort() -> None:
    sampled = [one.cohort for one in rounds(trial_of(), 30)]
    found = rounds(trial_of(availability={"rate": 0.6}), 30)
    assert [tuple(sorted((*one.cohort, *one.absent))) for one in found] == sampled
    assert {len(one.cohort) for one in found} == {0, 1, 2}
    for one in found:
        assert one.metrics["cohort/size"] == len(one.cohort)
        assert one.metrics["cohort/absent"] == len(one.absent)


def test_a_federation_without_failures_does_not_speak_of_them() -> None:
    (one,) = rounds(trial_of(), 1)
    assert one.absent == ()
    assert not any(name.startswith("cohort/") for name in one.metrics)


@pytest.mark.parametrize("sampler", ["random", "similarity"])
@pytest.mark.parametrize("method", sorted(set(methods.REGISTRY) - set(methods.REFERENCES)))
def test_if_nobody_is_there_nothing_is_learnt(method, sampler) -> None:
    trial = trial_of(
        method={"name": method}, sampler={"name": sampler}, availability={"rate": 1e-9}
    )
    server, shards = federation(trial)
    before = server.state
    one = run_round(server, shards)
    assert (one.cohort, len(one.absent)) == ((), 2)
    assert one.metrics["server/step_norm"] == one.metrics["cohort/size"] == 0
    assert server.state.round_index == 1
    assert server.state.method is before.method
    assert server.state.sampler is before.sampler


@pytest.mark.parametrize("method", ["scaffold", "fednova", "fedcome", "fedfv"])
def test_failures_do_not_depend_on_shards_or_interruptions(method, tmp_path: Path) -> None:
    trial = trial_of(
        method={"name": method},
        sampler={"name": "similarity"},
        availability={"rate": 0.5, "straggler_rate": 0.5},
        rounds=20,
    )

    def history(folder: str, num_shards: int, interrupted_after: int) -> tuple[Any, ...]:
        for _ in range(2):
            shards = LocalShards(trial, POPULATION, num_shards)
            run = TrialRun(trial, POPULATION, shards, tmp_path / folder)
            while run.rounds_done < interrupted_after:
                run.advance(0)
            run.checkpoint()
        run.advance(60)
        return run.server.params.tolist(), [
            (one.cohort, one.absent, {n: v for n, v in one.metrics.items() if "seconds" not in n})
            for one in run.rounds
        ]

    undisturbed = history("one", num_shards=1, interrupted_after=0)
    assert any(not cohort for cohort, *_ in undisturbed[1][1:])
    assert any(found["cohort/stragglers"] for *_, found in undisturbed[1][1:])
    assert history("other", num_shards=3, interrupted_after=4) == undisturbed


def test_params_that_are_not_finite_are_none_to_go_on_with() -> None:
    far = {"method": {"name": "fedavg", "server_lr": 3e38}, "local": {"lr": 100.0}}
    server, shards = federation(trial_of(**far))
    before = server.state
    with pytest.raises(DivergenceError, match=r"round 1: .* not the params"):
        run_round(server, shards)
    assert server.state == before


def report_of(update: torch.Tensor) -> Report:
    ones = torch.ones(len(update), 1)
    return Report(update, ones, ones, num_examples=torch.arange(1.0, len(update) + 1).unsqueeze(1))


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_clients_whose_updates_are_not_finite_are_named(number: float) -> None:
    server, shards = federation(trial_of())
    update = torch.ones(3, shards.shards[0].model.dim)
    update[1, 7] = update[2, 0] = number
    with pytest.raises(DivergenceError, match=r"clients \[3, 5\] are not finite"):
        server.aggregate((0, 3, 5), report_of(update))


def test_updates_as_large_as_numbers_get_are_not_blamed_for_it() -> None:
    server, shards = federation(trial_of())
    update = torch.full((3, shards.shards[0].model.dim), 3e38)
    server.aggregate((0, 3, 5), report_of(update))
    torch.testing.assert_close(server.params, update[0])


@pytest.mark.parametrize("seed", range(5))
def test_opposed_are_those_with_an_obtuse_angle_to_the_move(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    update = torch.randn(20, 40, generator=rng) * 10.0 ** torch.arange(-10, 10).unsqueeze(1)
    move = torch.randn(40, generator=rng)
    update[5] = update[6] - move * (update[6] @ move) / (move @ move)  # all but at right angles
    cosines = torch.nn.functional.cosine_similarity(update.double(), move.double(), dim=1, eps=0)
    assert num_opposed(report_of(update), move) == int((cosines < -ROUNDING).sum())


def test_nobody_is_opposed_to_a_move_that_all_agree_on() -> None:
    update = torch.rand(4, 40)
    assert num_opposed(report_of(update), update.mean(0)) == 0
    assert num_opposed(report_of(update[:0]), torch.zeros(40)) == 0
