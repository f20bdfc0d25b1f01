"""What happens on a pretend accelerator: `python -m tests.pretend_rounds` prints it as JSON.

A process of its own, see `tests.pretend`; the tests that look at the answers are in
`tests/unit/clients/test_on_a_device.py`.
"""

import gc
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from fedcome_ray import methods
from fedcome_ray.clients import memory
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.datasets.population import Population
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.health import gpu
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.trials.run import TrialRun
from tests import pretend

SIZES = (3, 9, 9, 20, 1, 14)
SHAPE, CLASSES = (1, 12, 12), 4
EVERYBODY = tuple(range(len(SIZES)))
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [16]},
    "logistic": {"name": "logistic"},
    "conv2": {"name": "conv2", "hidden": 32},
}


def trial_of(model: str = "mlp", method: str = "fedavg", **settings: Any) -> Trial:
    local = {"batch_size": 4, **settings.pop("local", {})}
    return Trial.model_validate(
        {"model": MODELS[model], "method": {"name": method}, "local": local, **settings}
    )


def population() -> Population:
    return random_population(SIZES, SHAPE, CLASSES)


def rounds(model: str, method: str) -> dict[str, Any]:
    """How far a trial, with a checkpoint in between, is from the same trial on the CPU."""
    trial = trial_of(
        model, method, rounds=3, cohort_size=4, eval_train_every=1, sampler={"name": "similarity"}
    )
    everybody = population()
    found = []
    for device in (torch.device("cpu"), pretend.DEVICE):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):  # the second goes on from the checkpoint of the first
                shards = LocalShards(trial, everybody, num_shards=2, device=device)
                run = TrialRun(trial, everybody, shards, Path(folder))
                run.advance(0)
                run.checkpoint()
            run.advance(60)
            found.append(run.server.params)
            run.finish()
    exact, other = found
    assert other.device.type == pretend.NAME
    return {"distance": float((other.cpu() - exact).norm() / exact.norm())}


def talk(model: str, method: str, epochs: int, is_static: bool = False) -> dict[str, int]:
    """Copies and reads of a round of training with so many epochs."""
    trial = trial_of(model, method, local={"epochs": epochs})
    shard = Shard(trial, population(), pretend.DEVICE)
    if is_static:
        shard.take_static_steps()
    received = first_message(shard, len(SIZES))
    pretend.TALK.clear()
    shard.train(received, EVERYBODY, 0)
    return dict(pretend.TALK)


def evaluation_talk(num_chunks: int) -> dict[str, int]:
    many = random_population([512] * num_chunks, (8,), CLASSES)
    shard = Shard(trial_of(), many, pretend.DEVICE)
    params = first_message(shard, num_chunks).params
    pretend.TALK.clear()
    shard.evaluate(params, range(num_chunks))
    return dict(pretend.TALK)


def lowered(model: str) -> dict[str, Any]:
    """Training in bfloat16, and how far it is from float32."""
    updates = []
    for precision in ("float32", "bfloat16"):
        trial = trial_of(model, local={"precision": precision})
        shard = Shard(trial, population(), pretend.DEVICE)
        received = first_message(shard, len(SIZES))
        updates.append(shard.train(received, EVERYBODY, 0).update.cpu())
        scores = shard.evaluate(received.params, [0])
    exact, other = updates
    return {
        "distance": float((other - exact).norm() / exact.norm()),
        "dtypes": [str(other.dtype), str(scores.loss.dtype)],
    }


def block_memory(model: str, method: str, local: dict[str, Any], size: int) -> dict[str, int]:
    """Bytes that a block has at its peak, beside examples and report, and what was expected."""
    num = 8
    trial = trial_of(model, method, local=local)
    shard = Shard(trial, random_population([size] * num, SHAPE, CLASSES), pretend.DEVICE)
    received = first_message(shard, num)
    shard.block_memory = 2**40
    gc.collect()
    before = sum(pretend.LIVE.values())
    pretend.PEAK[0] = before
    shard.train(received, tuple(range(num)), 0)
    width = min(size, local.get("batch_size", 4))
    own = memory.bytes_per_client(shard.model, shard.method, trial.local, width, size)
    report = num * 4 * (shard.model.dim + 3)
    inputs = num * size * trial.local.epochs * 4 * math.prod(SHAPE)
    gathered = min(inputs, memory.gathered_bytes(pretend.DEVICE))
    return {"peak": pretend.PEAK[0] - before - report, "expected": num * own + gathered}


def rows_held() -> list[dict[str, int]]:
    """Examples that each of two shards has on the device, of training and of testing."""
    many = random_population([100] * 20, (8,), CLASSES)
    shards = LocalShards(trial_of(), many, num_shards=2, device=pretend.DEVICE).shards
    return [{"train": len(s.train_examples.y), "test": len(s.test_examples.y)} for s in shards]


def mixing() -> str:
    try:
        torch.ones(3, device=pretend.DEVICE) + torch.ones(3)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def everything() -> dict[str, Any]:
    with_all = list(methods.REGISTRY)
    return {
        "mixing": mixing(),
        "rounds": {
            **{f"mlp, {method}": rounds("mlp", method) for method in with_all},
            **{f"{model}, fedcome": rounds(model, "fedcome") for model in ("logistic", "conv2")},
        },
        "talk": {
            f"{model}, {method}": [talk(model, method, epochs) for epochs in (1, 2, 5)]
            for model in MODELS
            for method in ("fedavg", "scaffold", "qffl")
        },
        "static_talk": {
            model: [talk(model, "scaffold", epochs, is_static=True) for epochs in (1, 2, 5)]
            for model in MODELS
        },
        "evaluation_talk": [evaluation_talk(num) for num in (1, 2, 5)],
        "lowered": {model: lowered(model) for model in MODELS},
        "block_memory": {
            "plain": block_memory("mlp", "fedavg", {"batch_size": 50}, 100),
            "corrected": block_memory("mlp", "feddc", {"batch_size": 50}, 100),
            "convolutional": block_memory("conv2", "fedavg", {"batch_size": 10}, 20),
            "small, many epochs": block_memory(
                "logistic", "fedavg", {"batch_size": 50, "epochs": 20}, 400
            ),
        },
        "rows_held": rows_held(),
        "examined": {
            name: [gpu.distance(trial, pretend.DEVICE), gpu.repeats(trial, pretend.DEVICE)]
            for name, trial in gpu.compared().items()
            if name in {"logistic", "conv2", "fedfv"}
        },
    }


if __name__ == "__main__":
    prepare_process()
    with pretend.install():
        answers = everything()
    sys.stdout.write(json.dumps(answers) + "\n")
