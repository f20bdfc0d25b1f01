"""The sharding rule: shards own equal ranges of clients, and score equal ranges of chunks.

What is split by it is joined in the same order, so that results do not depend on the number of
shards.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fedcome_ray import methods
from fedcome_ray.clients.evaluation import CHUNK, Evaluation, Scores, evaluation
from fedcome_ray.clients.shard import Part
from fedcome_ray.datasets.population import Indices, Population, Split
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.methods.method import AnyMethod, Cohort
from fedcome_ray.numerics.arrays import Arrays


def owners(clients: Indices, num_clients: int, num_shards: int) -> Indices:
    """The shard that each client lives in."""
    return clients * num_shards // num_clients


def split_cohort(cohort: Cohort, num_clients: int, num_shards: int) -> list[Cohort]:
    """The part of the cohort that lives in each shard."""
    owner = owners(np.array(cohort), num_clients, num_shards)
    cuts = np.searchsorted(owner, np.arange(1, num_shards)).tolist()
    bounds = [0, *cuts, len(cohort)]
    return [cohort[start:end] for start, end in pairwise(bounds)]


def rows_of(shares: Sequence[Cohort]) -> list[slice]:
    """Where the clients of each share stand in the cohort that was split."""
    ends = np.cumsum([0, *map(len, shares)]).tolist()
    return [slice(first, last) for first, last in pairwise(ends)]


def split_states(states: Arrays, num_clients: int, num_shards: int) -> list[Arrays]:
    """The part of the clients' states that belongs to each shard."""
    clients = states.get("ids", np.empty(0, np.int64))
    owner = owners(clients, num_clients, num_shards)
    return [
        {name: array[owner == shard] for name, array in states.items()}
        for shard in range(num_shards)
    ]


def join_states(parts: Sequence[Arrays]) -> Arrays:
    """The inverse of `split_states`."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def split_chunks(split: Split, num_shards: int) -> list[list[int]]:
    """The chunks of pooled examples that each shard scores."""
    num_chunks = -(-split.num_examples // CHUNK)
    bounds = [num_chunks * shard // num_shards for shard in range(num_shards + 1)]
    return [list(range(first, last)) for first, last in pairwise(bounds)]


def split_scored(method: AnyMethod, split: Split, num_shards: int) -> list[list[int]]:
    """What each shard scores: chunks, or its own clients where they have params of their own."""
    if method.start is None:
        return split_chunks(split, num_shards)
    everybody = tuple(range(len(split.sizes)))
    return list(map(list, split_cohort(everybody, len(everybody), num_shards)))


def part_of(population: Population, trial: Trial, shard: int, num_shards: int) -> Part:
    """What a shard needs of a population: its own clients' examples, and those that it scores."""
    train, test = population.train, population.test
    method = methods.build(trial.method)
    owner = owners(np.arange(population.num_clients), population.num_clients, num_shards)
    first, last = np.searchsorted(owner, [shard, shard + 1])
    places = [int(train.offsets[first]), int(train.offsets[last])]
    if method.pools and shard == 0:
        places += [0, train.num_examples]
    if trial.eval_train_every is not None:
        places += _scored(train, shard, num_shards)
    scored = _scored(test, shard, num_shards) or [0, 0]
    if trial.eval_personal_epochs is not None or method.start is not None:
        scored += [int(test.offsets[first]), int(test.offsets[last])]
    return Part(slice(min(places), max(places)), slice(min(scored), max(scored)))


def _scored(split: Split, shard: int, num_shards: int) -> list[int]:
    """Where the examples that a shard scores begin and end, nothing if it scores none."""
    chunks = split_chunks(split, num_shards)[shard]
    return [chunks[0] * CHUNK, min((chunks[-1] + 1) * CHUNK, split.num_examples)] if chunks else []


def join_scores(scores: Sequence[Scores], split: Split) -> Evaluation:
    """Results per client from the scores of all shards, in the order of their chunks."""
    loss, correct = (np.concatenate(column) for column in zip(*scores, strict=True))
    return evaluation(Scores(loss, correct), split.offsets)
