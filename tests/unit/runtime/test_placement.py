"""How trials are laid out."""

from dataclasses import replace

import pytest

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import UserError
from fedcome_ray.numerics import device, processors
from fedcome_ray.runtime.feasibility import check_feasible, check_gpus
from fedcome_ray.runtime.nodes import Nodes, unused_words
from fedcome_ray.runtime.placement import (
    Node,
    Placement,
    TrialPlace,
    capacity,
    place,
    slots,
    this_machine,
    words,
)

GB = 2**30


def machine(cpus: float, gpus: int = 0, gpu_memory: int = 24 * GB) -> Node:
    return Node("a-host", cpus, gpus, gpu_memory if gpus else 0)


def test_this_machine_is_what_a_private_ray_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "usable_cpus", lambda: 6)
    monkeypatch.setattr(device, "usable_gpus", lambda: [device.Gpu("a", 24 * GB)] * 2)
    assert this_machine(MachineOptions())[1:4] == (6, 2, 24 * GB)
    assert this_machine(MachineOptions(num_cpus=3, num_gpus=1))[1:4] == (3, 1, 24 * GB)
    assert this_machine(MachineOptions(num_gpus=0))[1:4] == (6, 0, 0)
    more_than_there_are = this_machine(MachineOptions(num_gpus=3))
    assert more_than_there_are[1:4] == (6, 0, 0)  # as `find_nodes` judges it


def cores_of(placement: Placement) -> float:
    return placement.concurrent * sum(bundle["CPU"] for bundle in placement.trial.bundles)


def layout(placement: Placement) -> tuple[int, float, int]:
    trial = placement.trial
    return trial.num_shards, trial.gpus_per_shard, placement.concurrent


@pytest.mark.parametrize("cpus", [1, 2, 4, 16, 96])
@pytest.mark.parametrize("num_trials", [1, 3, 56])
def test_a_placement_asks_for_no_more_than_there_is(cpus: int, num_trials: int) -> None:
    placement = place(MachineOptions(), num_trials, [machine(cpus)])
    assert cores_of(placement) <= cpus + 1e-6
    assert placement.concurrent <= num_trials


@pytest.mark.parametrize("num_trials", [1, 2, 3, 4])
def test_few_trials_run_all_at_once_whatever_the_number_of_cores(num_trials: int) -> None:
    for cpus in range(num_trials, 257):
        placement = place(MachineOptions(), num_trials, [machine(cpus)])
        assert cores_of(placement) <= cpus + 1e-9, cpus
        assert placement.concurrent == num_trials, cpus


def test_many_trials_get_one_core_each() -> None:
    placement = place(MachineOptions(), 56, [machine(8)])
    assert (placement.trial.num_shards, placement.concurrent) == (1, 8)
    assert cores_of(placement) == pytest.approx(8)


def test_few_trials_share_all_cores() -> None:
    placement = place(MachineOptions(), 2, [machine(8)])
    assert (placement.trial.num_shards, placement.concurrent) == (4, 2)
    assert cores_of(placement) == pytest.approx(8, abs=1e-3)


@pytest.mark.parametrize("cpus", [1, 2, 16])
@pytest.mark.parametrize("num_trials", [1, 2, 3])
def test_few_trials_find_room_for_their_servers_on_several_nodes(
    cpus: int, num_trials: int
) -> None:
    nodes = [machine(cpus)] * 4
    placement = place(MachineOptions(), num_trials, nodes)
    assert placement.concurrent == num_trials
    check_feasible(placement.trial, nodes)


def test_fractions_of_cores_let_more_trials_run_at_once() -> None:
    placement = place(MachineOptions(num_shards=3, cpus_per_shard=0.25), 56, [machine(2)])
    assert placement.trial.bundles == [{"CPU": 0.45}, *[{"CPU": 0.25}] * 2]
    assert placement.concurrent == 2


def test_fractions_that_add_up_to_a_core_are_not_lost_to_rounding() -> None:
    options = MachineOptions(num_shards=1, cpus_per_shard=0.1)
    assert place(options, 56, [machine(3)]).concurrent == 10


def test_the_user_can_ask_for_fewer_at_once() -> None:
    assert place(MachineOptions(max_concurrent=1), 56, [machine(8)]).concurrent == 1


def test_one_trial_runs_at_once_even_if_it_does_not_fit() -> None:
    assert place(MachineOptions(num_shards=4, cpus_per_shard=1), 5, [machine(1)]).concurrent == 1


@pytest.mark.parametrize(
    ("num_trials", "node", "expected"),
    [
        (1, machine(16, 1), (1, 1.0, 1)),
        (2, machine(16, 1), (1, 0.5, 2)),
        (3, machine(16, 1), (1, 0.3333, 3)),
        (56, machine(16, 1), (1, 0.25, 4)),
        (1, machine(16, 2), (2, 1.0, 1)),
        (3, machine(16, 2), (1, 0.5, 3)),
        (5, machine(16, 8), (1, 1.0, 5)),
        (56, machine(16, 1, 8 * GB), (1, 0.5, 2)),
        (56, machine(16, 1, 4 * GB), (1, 1.0, 1)),
        (56, machine(2, 1), (1, 0.5, 2)),
        (1, machine(2, 4), (4, 1.0, 1)),
        (56, machine(1, 1), (1, 1.0, 1)),
    ],
)
def test_trials_share_gpus_by_number_memory_and_cores(num_trials, node, expected) -> None:
    placement = place(MachineOptions(), num_trials, [node])
    assert layout(placement) == expected
    check_feasible(placement.trial, [node])


def test_the_server_computes_beside_the_first_shard_and_reserves_no_gpu_more() -> None:
    place_of_two = place(MachineOptions(), 1, [machine(16, 2)]).trial
    assert place_of_two.bundles == [{"CPU": 1.1, "GPU": 1.0}, {"CPU": 0.9, "GPU": 1.0}]
    on_cores = place(MachineOptions(num_shards=2), 1, [machine(16)]).trial
    assert on_cores.bundles == [{"CPU": 1.1}, {"CPU": 0.9}]


def test_gpus_are_asked_for_where_they_can_be_used() -> None:
    everywhere = TrialPlace(2, gpus_per_shard=1.0)
    some = replace(everywhere, gpu_nodes=("a", "b"))
    server, shard = some.bundles[:2]
    assert everywhere.label_selector(shard) == some.label_selector(server) == {}
    assert some.label_selector(shard) == {"ray.io/node-id": "in(a,b)"}


def test_nodes_whose_gpus_are_left_alone_are_named() -> None:
    why = ["b-host: Ray counts 2 GPU(s), PyTorch can use 0: a build"]
    assert unused_words(Nodes([machine(8)], why)) == f"no GPU is used. {why[0]}"
    said = unused_words(Nodes([machine(8, 1), machine(8)], why))
    assert said == f"only the GPUs of 1 node(s) are used. {why[0]}"


@pytest.mark.parametrize(
    ("num_shards", "expected"), [(1, (1, 1.0, 1)), (2, (2, 0.5, 1)), (6, (6, 0.1666, 1))]
)
def test_shards_that_are_asked_for_share_the_gpu(num_shards, expected) -> None:
    node = machine(16, 1)
    placement = place(MachineOptions(num_shards=num_shards), 1, [node])
    assert layout(placement) == expected
    check_feasible(placement.trial, [node])


def test_nodes_without_gpus_do_not_count_where_others_have_some() -> None:
    placement = place(MachineOptions(), 56, [machine(64), machine(8, 2)])
    assert layout(placement) == (1, 0.25, 8)


@pytest.mark.parametrize("wish", [{"gpus_per_shard": 0.0}, {"device": "cpu"}])
def test_gpus_are_left_alone_if_the_user_says_so(wish) -> None:
    placement = place(MachineOptions(**wish), 56, [machine(16, 1)])
    assert placement.concurrent == 16
    assert all("GPU" not in bundle for bundle in placement.trial.bundles)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.3, 1.5, 2])
def test_a_share_that_would_waste_a_gpu_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=f"gpus_per_shard: expected 0, 1 or .*, got `{share:g}`"):
        MachineOptions(gpus_per_shard=share)


@pytest.mark.parametrize(("share", "given"), [(0.33, 0.3333), (1 / 3, 0.3333), (0.25, 0.25)])
def test_equal_parts_of_a_gpu_are_taken_as_people_round_them(share, given) -> None:
    placement = place(MachineOptions(gpus_per_shard=share), 56, [machine(16, 1)])
    assert placement.trial.gpus_per_shard == given
    assert placement.concurrent == round(1 / share)


def test_wishes_that_contradict_each_other_are_refused() -> None:
    for wish in ({"device": "cpu", "gpus_per_shard": 0.5}, {"device": "gpu", "gpus_per_shard": 0}):
        with pytest.raises(UserError, match="contradicts"):
            MachineOptions(**wish)


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="device: expected `auto`, `cpu` or `gpu`, got `cuda`"):
        MachineOptions(device="cuda")


def test_a_share_of_a_gpu_is_not_spread_over_two() -> None:
    assert slots(machine(16, 2), {"CPU": 1, "GPU": 0.4}) == 4
    assert slots(machine(16, 2), {"CPU": 1, "GPU": 0.6}) == 2
    assert slots(machine(3, 2), {"CPU": 1, "GPU": 0.25}) == 3
    five = TrialPlace(5, cpus_per_shard=0.1, gpus_per_shard=0.4)
    with pytest.raises(UserError, match=r"5 shard\(s\) with 0.1 CPU and 0.4 GPU.*room for 4"):
        check_feasible(five, [machine(16, 2)])


def test_cores_of_one_node_do_not_serve_the_gpus_of_another() -> None:
    nodes = [machine(0.5, 4), machine(64)]
    assert capacity(TrialPlace(4, 1.0, 1.0), nodes, 1) == 0
    with pytest.raises(UserError, match="room for 0"):
        check_feasible(TrialPlace(4, 1.0, 1.0), nodes)


def test_a_wish_for_gpus_that_cannot_be_used_is_refused_with_the_cause() -> None:
    found = Nodes([machine(8)], ["a-host: Ray counts 1 GPU(s), PyTorch can use 0: a build"])
    check_gpus(MachineOptions(), found)
    with pytest.raises(UserError, match=r"--device: got `gpu`, .*a-host: Ray counts 1"):
        check_gpus(MachineOptions(device="gpu"), found)
    with pytest.raises(UserError, match=r"--gpus-per-shard: got `0.5`, .*Ray counts none"):
        check_gpus(MachineOptions(gpus_per_shard=0.5), Nodes([machine(8)], []))


def test_a_bundle_names_only_what_it_needs() -> None:
    assert TrialPlace(2, 0.5, 0.25).bundles[1:] == [{"CPU": 0.5, "GPU": 0.25}] * 2


def test_the_words_say_the_placement() -> None:
    alone = place(MachineOptions(num_shards=1), 56, [machine(8)])
    assert words(alone) == "8 at once, each one process with 1 CPU"
    shared = place(MachineOptions(num_shards=2), 56, [machine(8, 1)])
    assert words(shared) == (
        "2 at once, each one process with 1.1 CPU and 0.25 GPU, "
        "and 1 shard(s) with 0.9 CPU and 0.25 GPU"
    )
    joint = place(MachineOptions(memory_per_shard=2**20), 56, [machine(8)])
    assert words(joint).startswith("8 at once, each one process with 1 CPU, 1 MB for clients")
