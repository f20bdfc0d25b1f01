"""Populations in Ray's object store, once for all processes of a node.

The examples of a launch are put there where its command is given, and go to nodes that ask for
them. A node that has the files of a dataset itself reads them instead, in one process and once.
What it has read is taken if it is the same to the last byte: nothing depends on whose files they
were.
"""

import logging
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedcome_ray import datasets
from fedcome_ray.datasets import DatasetSettings
from fedcome_ray.datasets.population import Examples, Population, Side, digest
from fedcome_ray.errors import DataError
from fedcome_ray.runtime import objects
from fedcome_ray.runtime.nodes import present_nodes

logger = logging.getLogger(__name__)

NO_EXAMPLES = Examples(np.empty(0, np.float32), np.empty(0, np.int64))
SIDES: tuple[Side, Side] = ("train", "test")


class OwnFiles(NamedTuple):
    """Where a process asks for what its node has read itself."""

    keeper: Any  # the actor that is a `Keeper`
    home: str  # the node of the launch, which has read everything
    name: str  # of the population

    def read(self) -> "list[Examples | None]":
        """Of training and testing, where this node has the same in files of its own."""
        node = ray.get_runtime_context().get_node_id()
        if node == self.home:
            return [None, None]
        read: list[Examples | None] = ray.get(
            ray.get(self.keeper.read_on.remote(node, self.name))  # references, then examples
        )
        return read


class SharedPopulation(NamedTuple):
    """A population in the object store, where every process of a node reads it without a copy."""

    examples: tuple[Any, Any]  # references: of training, of testing
    rest: Any  # reference: the population without its examples
    own_files: OwnFiles | None = None

    def fetch(self) -> Population:
        own = [None, None] if self.own_files is None else self.own_files.read()
        train, test = (
            ray.get(given) if read is None else read
            for given, read in zip(self.examples, own, strict=True)
        )
        rest: Population = ray.get(self.rest)
        return rest._replace(
            train=rest.train._replace(examples=train), test=rest.test._replace(examples=test)
        )


def share(populations: MutableMapping[str, Population]) -> dict[str, SharedPopulation]:
    """Move populations into the object store; those of one dataset share its examples.

    The mapping is empty afterwards: nobody needs them in this process, too.
    """
    references: dict[int, Any] = {}

    def put(examples: Examples) -> Any:
        if id(examples.x) not in references:
            references[id(examples.x)] = objects.put(examples)
        return references[id(examples.x)]

    shared = {
        name: SharedPopulation(
            examples=(put(population.train.examples), put(population.test.examples)),
            rest=objects.put(
                population._replace(
                    train=population.train._replace(examples=NO_EXAMPLES),
                    test=population.test._replace(examples=NO_EXAMPLES),
                )
            ),
        )
        for name, population in populations.items()
    }
    populations.clear()
    return shared


def with_own_files(
    shared: Mapping[str, SharedPopulation],
    configs: Mapping[str, DatasetSettings],
    data_dir: Path | None,
) -> dict[str, SharedPopulation]:
    """The same populations for a cluster, whose nodes may have the files of some of them.

    They look where this launch does: in the data folder if one is given, else in their own one.
    """
    filed = {
        name: config for name, config in configs.items() if datasets.REGISTRY.of(config).has_files
    }
    if not filed:
        return dict(shared)
    home = ray.get_runtime_context().get_node_id()
    examples = {name: shared[name].examples for name in filed}
    keeper: Any = ray.remote(Keeper).options(**_on(home)).remote(examples, filed, data_dir)
    for node in present_nodes():  # beside the start of their trials; those that join will ask
        if node.cpus and node.key != home:
            for name in filed:
                keeper.read_on.remote(node.key, name)
    return {
        name: one._replace(own_files=OwnFiles(keeper, home, name)) if name in filed else one
        for name, one in shared.items()
    }


class Keeper:
    """Has each node read its files once, and knows what has come of it.

    It lives on the node of the launch and owns what was read: processes that needed it may be gone
    before others do.
    """

    def __init__(
        self,
        examples: dict[str, tuple[Any, Any]],
        configs: dict[str, DatasetSettings],
        data_dir: Path | None,
    ) -> None:
        self._examples, self._configs, self._data_dir = examples, configs, data_dir
        self._digests: dict[Any, str] = {}  # by the launch's reference
        self._read: dict[tuple[str, Any], Any] = {}  # references, by node and the launch's

    def read_on(self, node: str, name: str) -> list[Any]:
        """References to what the node has read of a population: examples, or None."""
        sides = dict(zip(self._examples[name], SIDES, strict=True))  # one, if examples are held out
        new = {one: side for one, side in sides.items() if (node, one) not in self._read}
        if new:
            wanted = {side: self._digest(one) for one, side in new.items()}
            reading = ray.remote(max_calls=1, num_returns=len(SIDES))(read_here).options(
                **_on(node)
            )
            read: Any = reading.remote(self._configs[name], self._data_dir, wanted)
            for one, side in new.items():
                self._read[node, one] = read[SIDES.index(side)]
        return [self._read[node, one] for one in self._examples[name]]

    def _digest(self, one: Any) -> str:
        if one not in self._digests:
            self._digests[one] = digest(ray.get(one))
        return self._digests[one]


def _on(node: str) -> dict[str, Any]:
    """Options of what takes no place from trials, on this node or nowhere."""
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def read_here(
    config: DatasetSettings, data_dir: Path | None, wanted: Mapping[Side, str]
) -> tuple[Examples | None, ...]:
    """The wanted sides of a population, as far as this node has them with these digests."""
    try:
        population = datasets.load(config, data_dir)
    except (DataError, OSError) as error:
        logger.info("%s is sent to this node: %s", config.dataset, error)
        return (None,) * len(SIDES)
    own = {side: population.side(side).examples for side in wanted}
    same = {side: one for side, one in own.items() if digest(one) == wanted[side]}
    if len(same) < len(own):
        logger.warning("%s is sent to this node, whose files are others", config.dataset)
    return tuple(map(same.get, SIDES))
