"""What a cluster cannot do is refused before anything starts; Ray would wait for ever."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import ray

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import UserError
from fedcome_ray.numerics import environment
from fedcome_ray.runtime.connection import on_every_node
from fedcome_ray.runtime.nodes import Nodes, find_nodes, present_nodes, unused_words
from fedcome_ray.runtime.placement import (
    Node,
    Placement,
    TrialPlace,
    at_once,
    bundle_words,
    capacity,
    place,
    slots,
)
from fedcome_ray.storage.remote import Remote


def lay_out(options: MachineOptions, num_trials: int) -> tuple[Placement, str | None]:
    """The placement on this cluster, and why GPUs that it has are left alone, if they are."""
    found = find_nodes()
    check_gpus(options, found)
    placement = place(options, num_trials, found.usable)
    check_feasible(placement.trial, found.usable)
    if not found.unused_gpus or options.refuses_gpus:
        return placement, None
    usable = tuple(node.key for node in found.usable if node.gpus)
    trial = replace(placement.trial, gpu_nodes=usable)
    return placement._replace(trial=trial), unused_words(found)


class Room:
    """How many trials the nodes host that there are by now: some may have joined, or be gone."""

    def __init__(
        self,
        options: MachineOptions,
        num_trials: int,
        trial: TrialPlace,
        check_output: Callable[[], None],
    ) -> None:
        self._wishes = options, num_trials, trial
        self._gpu_nodes, self._check_output = trial.gpu_nodes, check_output
        self._known = self._keys()

    def now(self) -> int:
        """Nodes that have joined are refused if they cannot write the output."""
        if self._keys() - self._known:
            with suppress(ray.exceptions.RayError):  # one that is gone again
                self._check_output()
                self._known = self._keys()
        return max(1, at_once(*self._wishes, present_nodes(self._gpu_nodes)))

    def _keys(self) -> set[str]:
        return {node.key for node in present_nodes()}


def check_gpus(options: MachineOptions, found: Nodes) -> None:
    """Refuse a wish that is none, or one for GPUs where there are none to use."""
    environment.convolution_form()
    if not options.wants_gpus or any(node.gpus for node in found.usable):
        return
    name = "--gpus-per-shard" if options.gpus_per_shard else "--device"
    wish = f"{options.gpus_per_shard:g}" if options.gpus_per_shard else options.device
    why = "; ".join(found.unused_gpus) or "Ray counts none"
    raise UserError(f"{name}: got `{wish}`, but there is no GPU to use: {why}")


def check_feasible(trial: TrialPlace, nodes: Sequence[Node]) -> None:
    """Refuse a trial that the nodes, all of them free, could not host."""
    if capacity(trial, nodes, 1):
        return
    shard = trial.bundles[-1]
    room = sum(slots(node, shard) for node in nodes)
    has = "; ".join(
        f"{node.host} has {node.cpus:g} CPU and {node.gpus} GPU: {slots(node, shard)}"
        for node in nodes
    )
    first = bundle_words(trial.bundles[0])
    others = f"{trial.num_actors} shard(s) with {bundle_words(shard)}"
    if not trial.is_joint:
        needs = f"{others}, and {first} beside them"
    elif trial.num_actors:
        total = trial.bundles[0]["CPU"] + trial.num_actors * shard["CPU"]
        needs = f"a process with {first}, and {others}, together {total:g} CPU"
    else:
        needs = f"a process with {first}"
    raise UserError(
        f"--num-shards, --cpus-per-shard, --gpus-per-shard: a trial needs {needs}; "
        f"there is room for {room} such shard(s) ({has})"
    )


def check_folder(folder: Path) -> None:
    """Refuse an output folder that some node of the cluster does not see."""
    if sum(node["Alive"] for node in ray.nodes()) == 1:
        return
    with tempfile.NamedTemporaryFile(prefix=".seen-", dir=folder) as marker:
        seen = on_every_node(os.path.exists, marker.name)
    if not all(seen):
        raise UserError(
            f"--output: {seen.count(False)} of {len(seen)} nodes do not see `{folder}`; "
            f"on a cluster it must be on storage that all nodes share, a folder or s3://"
        )


def check_storage(remote: Remote) -> None:
    """Refuse a storage that some node of the cluster cannot write to."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) == 1:
        return  # the driver's own, which has looked
    troubles = on_every_node(_trouble_with, remote)
    first = next(filter(None, troubles), None)
    if first is not None:
        raise UserError(
            f"{first} ({len(troubles) - troubles.count(None)} of {len(troubles)} nodes; each needs "
            f"the credentials in its own environment)"
        )


def _trouble_with(remote: Remote) -> str | None:
    try:
        remote.check()
    except UserError as error:
        return str(error)
    return None
