"""How trials are laid out, and what they are said to cost."""

from typing import Any

import pytest

from fedcome_ray.experiments.trial import parse_trial
from fedcome_ray.launch import plan_old as plan
from fedcome_ray.launch.plan_old import Layout, Machine, lay_out


def cores_of(layout: Layout) -> float:
    return layout.concurrent * sum(bundle["CPU"] for bundle in layout.machine.bundles)


@pytest.mark.parametrize("cpus", [1, 2, 4, 16, 96])
@pytest.mark.parametrize("num_trials", [1, 3, 56])
def test_a_layout_asks_for_no_more_than_there_is(cpus: int, num_trials: int) -> None:
    layout = lay_out(num_trials, cpus, gpus=0)
    assert cores_of(layout) <= cpus + 1e-6
    assert layout.concurrent <= num_trials


@pytest.mark.parametrize("num_trials", [1, 2, 3, 4])
def test_few_trials_run_all_at_once_whatever_the_number_of_cores(num_trials: int) -> None:
    for cpus in range(num_trials, 257):
        layout = lay_out(num_trials, cpus, gpus=0)
        assert cores_of(layout) <= cpus + 1e-9, cpus
        assert layout.concurrent == num_trials, cpus


def test_many_trials_get_one_core_each() -> None:
    layout = lay_out(56, cpus=8, gpus=0)
    assert (layout.machine.num_shards, layout.concurrent) == (1, 8)
    assert cores_of(layout) == pytest.approx(8)


def test_few_trials_share_all_cores() -> None:
    layout = lay_out(2, cpus=8, gpus=0)
    assert (layout.machine.num_shards, layout.concurrent) == (4, 2)
    assert cores_of(layout) == pytest.approx(8, abs=1e-3)


def test_fractions_of_cores_let_more_trials_run_at_once() -> None:
    layout = lay_out(56, cpus=2, gpus=0, num_shards=3, cpus_per_shard=0.25)
    assert layout.machine.bundles == [{"CPU": 0.2}, *[{"CPU": 0.25}] * 3]
    assert layout.concurrent == 2


def test_fractions_that_add_up_to_a_core_are_not_lost_to_rounding() -> None:
    assert lay_out(56, cpus=3, gpus=0, num_shards=1, cpus_per_shard=0.1).concurrent == 10


def test_the_user_can_ask_for_fewer_at_once() -> None:
    assert lay_out(56, cpus=8, gpus=0, max_concurrent=1).concurrent == 1


def test_one_trial_runs_at_once_even_if_it_does_not_fit() -> None:
    assert lay_out(5, cpus=1, gpus=0, num_shards=4, cpus_per_shard=1).concurrent == 1


def test_a_gpu_is_shared_by_four_shards() -> None:
    layout = lay_out(56, cpus=16, gpus=1)
    assert layout.machine.gpus_per_shard == 0.25
    assert layout.concurrent == 4


def test_gpus_are_left_alone_if_the_user_says_so() -> None:
    layout = lay_out(56, cpus=16, gpus=1, gpus_per_shard=0)
    assert layout.concurrent == 16
    assert all("GPU" not in bundle for bundle in layout.machine.bundles)


def test_a_bundle_names_only_what_it_needs() -> None:
    assert Machine(2, 0.5, 0.25).bundles[1:] == [{"CPU": 0.5, "GPU": 0.25}] * 2


def trial_of(**settings: Any) -> Any:
    return parse_trial({"model": {"name": "logistic"}, "rounds": 10, **settings})


def test_the_cost_counts_rounds_and_client_updates() -> None:
    trials = [trial_of(cohort_size=5), trial_of(participation=0.5, seed=1)]
    cost = plan.estimate(trials)
    assert cost.rounds == 20
    assert cost.client_updates == 10 * 5 + 10 * 25
    assert cost.disk_bytes > 2 * 4 * (64 + 1) * 10


def test_more_rounds_cost_more() -> None:
    short, long = (plan.estimate([trial_of(rounds=rounds)]) for rounds in (100, 100_000))
    assert 0 < short.cpu_seconds < long.cpu_seconds


def test_nothing_costs_nothing() -> None:
    assert plan.estimate([]) == (0, 0, 0, 0, 0)


def test_the_words_say_the_layout_and_the_cost() -> None:
    layout = lay_out(56, cpus=8, gpus=1, num_shards=1)
    assert plan.words(layout).startswith("4 at once, each a server with 0.2 CPU and 1 shard")
    assert "0.25 GPU" in plan.words(layout)
    joint = lay_out(56, cpus=8, gpus=0)
    assert plan.words(joint).startswith("8 at once, each one process with 1 CPU")
    said = plan.cost_words(plan.Cost(1000, 20_000, 7200.0, 5_000_000, 0), layout)
    assert said.startswith("1,000 rounds, 20,000 client updates: about 0:30:00 on 4 cores")
