"""The nodes of a cluster, with the GPUs that trials can use there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import ray

from fedcome_ray.numerics import device
from fedcome_ray.runtime.connection import on_nodes
from fedcome_ray.runtime.placement import Node


class Nodes(NamedTuple):
    """What a cluster has."""

    usable: list[Node]
    unused_gpus: list[str]  # why GPUs that Ray counts are left alone, by node


class Gpus(NamedTuple):
    """What a node answers."""

    usable: list[device.Gpu]
    why_none: str


def find_nodes() -> Nodes:
    """The nodes of the cluster; those on which Ray counts GPUs are asked what PyTorch can use.

    If only some nodes can use theirs, no trial gets a GPU: Ray could send it to the others.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = [node["NodeID"] for node in alive if _counted(node)]
    answers = dict(zip(asked, on_nodes(asked, gpus_here), strict=True))
    nodes = [_node(node, answers.get(node["NodeID"])) for node in alive]
    unused = [_complaint(node, answers[node["NodeID"]]) for node in alive if _counted(node)]
    causes = [cause for cause in unused if cause is not None]
    return Nodes([node.without_gpus() for node in nodes] if causes else nodes, causes)


def gpus_here() -> Gpus:
    usable = device.usable_gpus()
    return Gpus(usable, "" if usable else device.no_gpu_because())


def _counted(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _node(node: dict[str, Any], answer: Gpus | None) -> Node:
    memory = min((gpu.memory for gpu in answer.usable), default=0) if answer else 0
    cpus = node["Resources"].get("CPU", 0)
    return Node(node["NodeManagerHostname"], cpus, _counted(node), memory)


def _complaint(node: dict[str, Any], answer: Gpus) -> str | None:
    if len(answer.usable) >= _counted(node):
        return None
    why = f": {answer.why_none}" if answer.why_none else ""
    return (
        f"{node['NodeManagerHostname']}: Ray counts {_counted(node)} GPU(s), "
        f"PyTorch can use {len(answer.usable)}{why}"
    )


def unused_words(causes: Sequence[str]) -> str:
    """One line for the user."""
    return f"no GPU is used. {'; '.join(causes)}"
