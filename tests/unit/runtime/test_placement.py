"""How trials are laid out."""

import pytest

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.runtime.placement import Placement, TrialPlace, place, words


def cores_of(placement: Placement) -> float:
    return placement.concurrent * sum(bundle["CPU"] for bundle in placement.trial.bundles)


@pytest.mark.parametrize("cpus", [1, 2, 4, 16, 96])
@pytest.mark.parametrize("num_trials", [1, 3, 56])
def test_a_placement_asks_for_no_more_than_there_is(cpus: int, num_trials: int) -> None:
    placement = place(MachineOptions(), num_trials, cpus, 0)
    assert cores_of(placement) <= cpus + 1e-6
    assert placement.concurrent <= num_trials


@pytest.mark.parametrize("num_trials", [1, 2, 3, 4])
def test_few_trials_run_all_at_once_whatever_the_number_of_cores(num_trials: int) -> None:
    for cpus in range(num_trials, 257):
        placement = place(MachineOptions(), num_trials, cpus, 0)
        assert cores_of(placement) <= cpus + 1e-9, cpus
        assert placement.concurrent == num_trials, cpus


def test_many_trials_get_one_core_each() -> None:
    placement = place(MachineOptions(), 56, 8, 0)
    assert (placement.trial.num_shards, placement.concurrent) == (1, 8)
    assert cores_of(placement) == pytest.approx(8)


def test_few_trials_share_all_cores() -> None:
    placement = place(MachineOptions(), 2, 8, 0)
    assert (placement.trial.num_shards, placement.concurrent) == (4, 2)
    assert cores_of(placement) == pytest.approx(8, abs=1e-3)


def test_fractions_of_cores_let_more_trials_run_at_once() -> None:
    placement = place(MachineOptions(num_shards=3, cpus_per_shard=0.25), 56, 2, 0)
    assert placement.trial.bundles == [{"CPU": 0.2}, *[{"CPU": 0.25}] * 3]
    assert placement.concurrent == 2


def test_fractions_that_add_up_to_a_core_are_not_lost_to_rounding() -> None:
    assert place(MachineOptions(num_shards=1, cpus_per_shard=0.1), 56, 3, 0).concurrent == 10


def test_the_user_can_ask_for_fewer_at_once() -> None:
    assert place(MachineOptions(max_concurrent=1), 56, 8, 0).concurrent == 1


def test_one_trial_runs_at_once_even_if_it_does_not_fit() -> None:
    assert place(MachineOptions(num_shards=4, cpus_per_shard=1), 5, 1, 0).concurrent == 1


def test_a_gpu_is_shared_by_four_shards() -> None:
    placement = place(MachineOptions(), 56, 16, 1)
    assert placement.trial.gpus_per_shard == 0.25
    assert placement.concurrent == 4


def test_gpus_are_left_alone_if_the_user_says_so() -> None:
    placement = place(MachineOptions(gpus_per_shard=0), 56, 16, 1)
    assert placement.concurrent == 16
    assert all("GPU" not in bundle for bundle in placement.trial.bundles)


def test_a_bundle_names_only_what_it_needs() -> None:
    assert TrialPlace(2, 0.5, 0.25).bundles[1:] == [{"CPU": 0.5, "GPU": 0.25}] * 2


def test_the_words_say_the_placement() -> None:
    alone = place(MachineOptions(num_shards=1), 56, 8, 1)
    assert words(alone).startswith("4 at once, each a server with 0.2 CPU and 1 shard")
    assert "0.25 GPU" in words(alone)
    joint = place(MachineOptions(), 56, 8, 0)
    assert words(joint).startswith("8 at once, each one process with 1 CPU")
