"""What one process computes with, and what comes out: `python -m fedcome_ray.health.probe`.

A process of its own, because libraries choose their instructions when they are loaded: one probe
computes as trials usually do, another one portably. It prints one line of JSON.
"""

import hashlib
import json
import platform
import sys
import time
from importlib.metadata import version
from typing import Any, TypedDict

from fedcome_ray.clients.company import CLASSES, dependent_kinds
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.numerics.device import CPU, prepare_process, usable_gpus
from fedcome_ray.numerics.libraries import Arithmetic, arithmetic
from fedcome_ray.version import __version__

PACKAGES = ("torch", "numpy", "scipy", "numba", "osqp", "ray", "mlflow")
SPEED_SECONDS = 1.0
ROUNDS = 3
SIZES = (1, 2, 3, 20, 20, 33, 49, 50)

# What they learn is meaningless; they go through every kind of arithmetic that trials do.
FINGERPRINTED: dict[str, dict[str, Any]] = {
    "dense": {"model": {"name": "mlp"}, "method": {"name": "scaffold"}},
    "convolutional": {"model": {"name": "conv2", "hidden": 32}, "cohort_size": 4},
    "fedcome": {
        "model": {"name": "mlp"},
        "method": {"name": "fedcome"},
        "sampler": {"name": "similarity"},
        "cohort_size": 5,
    },
}
# As in the experiments on MNIST and FEMNIST, with fewer clients.
TIMED: dict[str, tuple[dict[str, Any], int]] = {
    "dense": ({"model": {"name": "mlp"}}, 20),
    "convolutional": ({"model": {"name": "conv2"}, "local": {"batch_size": 10}}, 2),
}


class Probe(TypedDict):
    """What a probe prints."""

    versions: dict[str, str]
    arithmetic: Arithmetic
    dependent_kinds: list[str]
    fingerprints: dict[str, str]
    gpus: list[str]
    examples_per_second: dict[str, float]


def probe(with_speed: bool) -> Probe:
    prepare_process()
    return {
        "versions": {
            "python": platform.python_version(),
            "fedcome-ray": __version__,
            **{package: version(package) for package in PACKAGES},
        },
        "arithmetic": arithmetic(CPU),
        "dependent_kinds": dependent_kinds(),
        "fingerprints": {kind: fingerprint(kind) for kind in FINGERPRINTED},
        "gpus": [gpu.name for gpu in usable_gpus()],
        "examples_per_second": {kind: speed(kind) for kind in TIMED} if with_speed else {},
    }


def fingerprint(kind: str) -> str:
    """The params after a fixed small trial, as a hash: equal where arithmetic is equal."""
    trial = Trial.model_validate(FINGERPRINTED[kind])
    population = random_population(SIZES, (1, 12, 12), CLASSES)
    shards = LocalShards(trial, population)
    server = Server(trial, shards.shards[0].model.init(0), population.num_clients)
    for _ in range(ROUNDS):
        run_round(server, shards)
    return hashlib.sha256(server.params.numpy().tobytes()).hexdigest()[:8]


def speed(kind: str) -> float:
    """Examples that one process trains on in a second."""
    settings, num_clients = TIMED[kind]
    population = random_population([200] * num_clients, (1, 28, 28), num_classes=10)
    shard = Shard(Trial.model_validate(settings), population)
    received = first_message(shard, num_clients)
    cohort = tuple(range(num_clients))
    shard.train(received, cohort, 0)  # warms up
    start, rounds = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < SPEED_SECONDS:
        shard.train(received, cohort, rounds)
        rounds += 1
    return rounds * len(population.train.order) / elapsed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(with_speed="--speed" in sys.argv[1:])) + "\n")
