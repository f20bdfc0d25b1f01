"""The nodes of a cluster, as Ray tells of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import UserError
from fedcome_ray.runtime import feasibility
from fedcome_ray.runtime.feasibility import Room
from fedcome_ray.runtime.nodes import present_nodes
from fedcome_ray.runtime.placement import TrialPlace


def told(key: str, cpus: float, gpus: float = 0, *, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus, "memory": 1e9}
    name = {"NodeID": key, "NodeManagerHostname": f"host-{key}"}
    return {**name, "Alive": alive, "Resources": resources}


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    some = [told("a", 2), told("b", 4, 2), told("c", 4, 2), told("d", 64, alive=False)]
    monkeypatch.setattr(ray, "nodes", lambda: some)
    return some


def room(place: TrialPlace, num_trials: int = 56) -> int:
    return Room(MachineOptions(), num_trials, place, lambda: None).now()


def test_nodes_that_are_gone_do_not_count(nodes: list[dict[str, Any]]) -> None:
    assert [(node.key, node.cpus, node.gpus) for node in present_nodes()] == [
        ("a", 2, 0),
        ("b", 4, 2),
        ("c", 4, 2),
    ]


def test_gpus_count_where_they_are_known_to_be_of_use(nodes: list[dict[str, Any]]) -> None:
    assert [node.gpus for node in present_nodes(["c"])] == [0, 0, 2]
    place = TrialPlace(cpus_per_shard=0.8, gpus_per_shard=0.5, is_joint=True)
    assert room(place) == 8
    assert room(replace(place, gpu_nodes=("c",))) == 4


def test_the_room_follows_the_nodes_up_to_what_there_is_to_do(nodes: list[dict[str, Any]]) -> None:
    place = TrialPlace(is_joint=True)
    assert room(place) == 10
    assert room(place, num_trials=7) == 7
    assert room(replace(place, num_shards=2)) == 5  # a core for each shard
    nodes.clear()
    assert room(place) == 1  # or nothing would ever start


def test_a_node_that_joins_must_see_the_output_folder(
    nodes: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def see(_function: object, marker: str) -> list[bool]:
        asked.append(Path(marker).parent)
        return [True, True, True, len(asked) == 1]

    monkeypatch.setattr(feasibility, "on_every_node", see)
    check = partial(feasibility.check_folder, tmp_path)
    later = Room(MachineOptions(), 56, TrialPlace(is_joint=True), check)
    assert later.now() == 10
    nodes.append(told("e", 3))
    assert [later.now(), later.now()] == [13, 13]
    assert asked == [tmp_path]  # once, and not of those that were there from the start
    nodes.append(told("f", 3))
    with pytest.raises(UserError, match="--output: 1 of 4 nodes do not see"):
        later.now()
