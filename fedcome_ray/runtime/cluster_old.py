"""The same federation on Ray: a private local cluster or a given one, and shards behind actors."""

import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)
from rich.console import Console
from torch import Tensor

from fedcome_ray import methods
from fedcome_ray.clients.company import computed_with
from fedcome_ray.clients.evaluation import Metrics, Scores
from fedcome_ray.clients.shard import Shard
from fedcome_ray.console import cli_old as cli
from fedcome_ray.datasets.population import Examples, Population, Side
from fedcome_ray.errors import ShardError, UserError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import (
    join_scores,
    join_states,
    split_chunks,
    split_cohort,
    split_states,
)
from fedcome_ray.launch.plan_old import Bundle, Machine
from fedcome_ray.methods.method import Cohort, Report
from fedcome_ray.numerics import device, environment
from fedcome_ray.numerics.arrays import received_tensor, shared_tensor, to_arrays, to_tensors
from fedcome_ray.numerics.libraries import Arithmetic
from fedcome_ray.trials.checkpoint import Arrays

AnyT = TypeVar("AnyT")

ROUNDING = 1e-6  # of sums of resources
NO_EXAMPLES = Examples(np.empty(0, np.float32), np.empty(0, np.int64))


@contextmanager
def connected(address: str | None, console: Console) -> Iterator[Bundle]:
    """A Ray cluster to work on, and its resources; a private one is stopped afterwards."""
    if ray.is_initialized():
        yield ray.cluster_resources()
        return
    console.print("starting Ray ..." if address is None else f"joining Ray at {address} ...")
    _connect(address)
    is_over = threading.Event()

    def stop(*_: object) -> None:
        threading.Thread(target=_leave_without_ray, args=(is_over, console), daemon=True).start()
        os.kill(os.getpid(), signal.SIGINT)

    # Ray's own handler of SIGTERM aborts the process; a stop by Ctrl-C is orderly.
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield ray.cluster_resources()
    finally:
        is_over.set()
        signal.signal(signal.SIGTERM, previous)
        ray.shutdown()


def _leave_without_ray(is_over: threading.Event, console: Console) -> None:
    """End this process if Ray is gone; Ray's client would block it for a minute, then abort.

    That is so when SIGTERM went to the whole process group, as batch systems send it. The folders
    of trials are always in a state to go on from.
    """
    address = ray.get_runtime_context().gcs_address
    while not is_over.wait(0.5):
        try:
            _probe(address)
        except OSError:
            console.show_cursor()
            console.print(cli.INTERRUPTED)
            os._exit(cli.FAILED)


class SharedPopulation(NamedTuple):
    """A population in the object store, where every process of a node reads it without a copy."""

    examples: tuple[Any, Any]  # references: of training, of testing
    rest: Any  # reference: the population without its examples

    def fetch(self) -> Population:
        train, test = ray.get(list(self.examples))
        rest: Population = ray.get(self.rest)
        return rest._replace(
            train=rest.train._replace(examples=train), test=rest.test._replace(examples=test)
        )


def share(populations: Mapping[str, Population]) -> dict[str, SharedPopulation]:
    """Put populations into the object store; those of one dataset share its examples."""
    references: dict[int, Any] = {}

    def put(examples: Examples) -> Any:
        if id(examples.x) not in references:
            references[id(examples.x)] = ray.put(examples)
        return references[id(examples.x)]

    return {
        name: SharedPopulation(
            examples=(put(population.train.examples), put(population.test.examples)),
            rest=ray.put(
                population._replace(
                    train=population.train._replace(examples=NO_EXAMPLES),
                    test=population.test._replace(examples=NO_EXAMPLES),
                )
            ),
        )
        for name, population in populations.items()
    }


def check_address(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(f"--address: expected HOST:PORT or `auto`, got `{address}`")
    try:
        _probe(address)
    except OSError as error:
        raise UserError(f"--address: nothing listens at `{address}`: {error}") from None


def _probe(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def _connect(address: str | None) -> None:
    """Join the cluster at this address, or start a private one on the loopback interface."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Ray asks for a token by default: a fresh one, which only this launch's processes know.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Without "local", Ray would join whatever RAY_ADDRESS or an earlier `ray start` names.
        ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        return
    try:
        # The switches of a private Ray's processes are inherited, those of other nodes are sent.
        switches = environment.portable_switches() if environment.is_portable() else {}
        ray.init(address=address, runtime_env={"env_vars": switches}, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"--address: no Ray cluster answers at `{address}`: {reason}") from None


def check_feasible(machine: Machine) -> None:
    """Refuse a trial that no node could ever host; Ray would wait for ever."""
    nodes: list[Bundle] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for bundle in machine.bundles:
        if not any(all(node.get(k, 0) >= v for k, v in bundle.items()) for node in nodes):
            wanted = ", ".join(f"{v:g} {k}" for k, v in bundle.items())
            largest: Bundle = max(nodes, key=lambda node: node.get("CPU", 0), default={})
            has = ", ".join(f"{largest.get(k, 0):g} {k}" for k in ("CPU", "GPU"))
            raise UserError(
                f"--cpus-per-shard/--gpus-per-shard: no node can host a bundle of {wanted}; "
                f"the largest node has {has}"
            )
    wanted_cpus = sum(bundle.get("CPU", 0) for bundle in machine.bundles)
    all_cpus = sum(node.get("CPU", 0) for node in nodes)
    wanted_gpus = sum(bundle.get("GPU", 0) for bundle in machine.bundles)
    all_gpus = sum(node.get("GPU", 0) for node in nodes)
    if wanted_cpus > all_cpus + ROUNDING or wanted_gpus > all_gpus + ROUNDING:
        raise UserError(
            f"--num-shards: a trial needs {wanted_cpus:g} CPUs and {wanted_gpus:g} GPUs, "
            f"the cluster has {all_cpus:g} and {all_gpus:g}"
        )


def on_every_node(function: Callable[..., AnyT], *arguments: Any) -> list[AnyT]:
    """What a function answers on each node of the cluster."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    calls = [
        ray.remote(function)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, False))
        .remote(*arguments)
        for node in nodes
    ]
    return list(ray.get(calls))


def check_storage(folder: Path) -> None:
    """Refuse an output folder that some node of the cluster does not see."""
    with tempfile.NamedTemporaryFile(prefix=".seen-", dir=folder) as marker:
        seen = on_every_node(os.path.exists, marker.name)
    if not all(seen):
        raise UserError(
            f"--output: {seen.count(False)} of {len(seen)} nodes do not see `{folder}`; "
            f"on a cluster it must be on storage that all nodes share"
        )


class ShardHost:
    """The process of a shard actor; it serves one trial after the other."""

    def __init__(self, machine: Machine) -> None:
        device.prepare_process()
        self._device = device.pick(machine.gpus_per_shard)
        self._memory = machine.memory_per_shard
        self._shard: Shard | None = None

    def load(self, trial: dict[str, Any], plugins: list[str], shared: SharedPopulation) -> None:
        methods.load_plugins(plugins)
        settings = Trial.model_validate(trial)
        self._shard = Shard(settings, shared.fetch(), self._device, self._memory)

    def train(self, received: Any, clients: Cohort, round_index: int) -> tuple[Any, ...]:
        report = self.shard.train(to_tensors(received), clients, round_index)
        return tuple(field.numpy() for field in report.fields())

    def evaluate(self, params: Any, chunks: list[int], side: Side) -> Scores:
        return self.shard.evaluate(received_tensor(params), chunks, side)

    def computed_with(self) -> Arithmetic:
        return computed_with(self._device)

    def export_states(self) -> Arrays:
        return self.shard.states.export()

    def restore_states(self, states: Arrays) -> None:
        self.shard.states.restore(states)

    @property
    def shard(self) -> Shard:
        assert self._shard is not None
        return self._shard


class ShardPool:
    """Shard actors that outlive trials: starting a torch process costs more than a small trial.

    They live in the placement group of the actor that owns the pool, so a trial either has all its
    resources or waits.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.actors = [self._start(number) for number in range(machine.num_shards)]

    def replace_dead(self) -> None:
        for number, actor in enumerate(self.actors):
            try:
                ray.get(actor.__ray_ready__.remote())
            except ray.exceptions.RayActorError:
                self.actors[number] = self._start(number)

    def _start(self, number: int) -> Any:
        group = get_current_placement_group()
        place: Any = "DEFAULT"
        if group is not None:
            place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number + 1)
        return (
            ray.remote(ShardHost)
            .options(
                num_cpus=self.machine.cpus_per_shard,
                num_gpus=self.machine.gpus_per_shard,
                scheduling_strategy=place,
            )
            .remote(self.machine)
        )


class RayShards:
    """The shards of one trial, behind the actors of a pool."""

    def __init__(
        self, trial: Trial, shared: SharedPopulation, pool: ShardPool, plugins: Sequence[str] = ()
    ) -> None:
        self.pool = pool
        self.population = shared.fetch()
        self._load_arguments = (trial.model_dump(mode="json"), list(plugins), shared)
        self._load()

    def train(self, received: Any, cohort: Cohort, round_index: int) -> Sequence[Report]:
        message = ray.put(to_arrays(received))  # once, for all shards
        shares = split_cohort(cohort, self.population.num_clients, len(self.pool.actors))
        calls = [
            actor.train.remote(message, clients, round_index)
            for actor, clients in zip(self.pool.actors, shares, strict=True)
            if clients
        ]
        return [Report(*map(shared_tensor, fields)) for fields in _answers(calls)]

    def evaluate(self, params: Tensor, side: Side = "test") -> Metrics:
        message = ray.put(params.numpy())
        split = self.population.side(side)
        shares = split_chunks(split, len(self.pool.actors))
        calls = [
            actor.evaluate.remote(message, chunks, side)
            for actor, chunks in zip(self.pool.actors, shares, strict=True)
            if chunks
        ]
        return join_scores(_answers(calls), split)

    def computed_with(self) -> Sequence[Arithmetic]:
        return _answers([actor.computed_with.remote() for actor in self.pool.actors])

    def export_states(self) -> Arrays:
        return join_states(_answers([actor.export_states.remote() for actor in self.pool.actors]))

    def restore_states(self, states: Arrays) -> None:
        actors = self.pool.actors
        shares = split_states(states, self.population.num_clients, len(actors))
        _answers(
            [
                actor.restore_states.remote(share)
                for actor, share in zip(actors, shares, strict=True)
            ]
        )

    def rebuild(self) -> None:
        self.pool.replace_dead()
        self._load()

    def _load(self) -> None:
        _answers([actor.load.remote(*self._load_arguments) for actor in self.pool.actors])


def _answers(calls: Sequence[Any]) -> list[Any]:
    """The results of calls to shards; the death of one is ours to handle, its errors are not."""
    try:
        return list(ray.get(list(calls)))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
        raise ShardError(f"a shard died: {error}") from error
