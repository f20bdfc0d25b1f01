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

    A node that can use only some of its GPUs is taken to have none: Ray gives out the others too.
    """
    alive = _alive()
    asked = [node["NodeID"] for node in alive if _counted(node)]
    answers = dict(zip(asked, on_nodes(asked, gpus_here), strict=True))
    usable, unused_gpus = [], []
    for one in alive:
        node, answer = _node(one), answers.get(one["NodeID"])
        if answer is None:
            usable.append(node)
        elif len(answer.usable) < node.gpus:
            usable.append(node.without_gpus())
            unused_gpus.append(_complaint(node, answer))
        else:
            usable.append(node._replace(gpu_memory=min(gpu.memory for gpu in answer.usable)))
    return Nodes(usable, unused_gpus)


def present_nodes(with_gpus: Sequence[str] = ()) -> list[Node]:
    """The nodes by now, as Ray counts them; nothing is asked of them.

    If some are known to be those with GPUs to use, the GPUs of others are not counted.
    """
    found = map(_node, _alive())
    return [
        node.without_gpus() if with_gpus and node.key not in with_gpus else node for node in found
    ]


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def gpus_here() -> Gpus:
    usable = device.usable_gpus()
    return Gpus(usable, "" if usable else device.no_gpu_because())


def _counted(node: dict[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _node(node: dict[str, Any]) -> Node:
    cpus = node["Resources"].get("CPU", 0)
    return Node(node["NodeManagerHostname"], cpus, _counted(node), key=node["NodeID"])


def _complaint(node: Node, answer: Gpus) -> str:
    why = f": {answer.why_none}" if answer.why_none else ""
    return f"{node.host}: Ray counts {node.gpus} GPU(s), PyTorch can use {len(answer.usable)}{why}"


def unused_words(found: Nodes) -> str:
    """One line for the user."""
    in_use = sum(node.gpus > 0 for node in found.usable)
    what = f"only the GPUs of {in_use} node(s) are used" if in_use else "no GPU is used"
    return f"{what}. {'; '.join(found.unused_gpus)}"
