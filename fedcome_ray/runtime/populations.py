"""Populations in Ray's object store, once for all processes of a node."""

from collections.abc import MutableMapping
from typing import Any, NamedTuple

import numpy as np
import ray

from fedcome_ray.datasets.population import Examples, Population
from fedcome_ray.runtime import objects

NO_EXAMPLES = Examples(np.empty(0, np.float32), np.empty(0, np.int64))


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
