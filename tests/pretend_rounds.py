"""What happens on a pretend accelerator: `python -m tests.pretend_rounds` prints it as JSON, with
`on-ray` what happens there with an actor of Ray.

A process of its own, see `tests.pretend`; the tests that look at the answers are in
`tests/unit/clients/test_on_a_device.py`.
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fedcome_ray import methods
from fedcome_ray.clients import memory
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.console.options import MachineOptions
from fedcome_ray.datasets import synthetic
from fedcome_ray.datasets.population import FLOAT32, Population
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.health import gpu
from fedcome_ray.launch import cost
from fedcome_ray.numerics import environment
from fedcome_ray.numerics.device import prepare_process
from fedcome_ray.runtime import shards
from fedcome_ray.runtime.connection import SHARDS, connected
from fedcome_ray.runtime.placement import TrialPlace
from fedcome_ray.runtime.populations import share
from fedcome_ray.trials.run import TrialRun
from tests import pretend

SIZES = (3, 9, 9, 20, 1, 14)
SHAPE, CLASSES = (1, 12, 12), 4
SHAPES = {"conv4": (1, 16, 16), "transformer": (6,)}  # of conv4, the least it takes
EVERYBODY = tuple(range(len(SIZES)))
FAILURES = {
    "availability": {"rate": 0.8, "straggler_rate": 0.5},
    "local": {"momentum": 0.5, "epochs": 2},
    "eval_personal_epochs": 1,
}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [16]},
    "logistic": {"name": "logistic"},
    "conv2": {"name": "conv2", "hidden": 32},
    "conv4": {"name": "conv4", "hidden": 16},
    "mcmahan": {"name": "mcmahan", "hidden": 16},
    "resnet18": {"name": "resnet18", "width": 2},
    "transformer": {"name": "transformer", "width": 8, "heads": 2, "layers": 1},
}
DRAWN = synthetic.Synthetic(num_clients=6, examples_per_client=5)
SMALL = ("mlp", "logistic", "conv2")
CONVOLUTIONAL = ("conv2", "conv4", "mcmahan")


def trial_of(model: str = "mlp", method: str = "fedavg", **settings: Any) -> Trial:
    local = {"batch_size": 4, **settings.pop("local", {})}
    return Trial.model_validate(
        {"model": MODELS[model], "method": {"name": method}, "local": local, **settings}
    )


def population(model: str = "mlp", sizes: Sequence[int] = SIZES) -> Population:
    dtype = np.dtype(np.int64) if model == "transformer" else FLOAT32
    return random_population(sizes, SHAPES.get(model, SHAPE), CLASSES, dtype)


def rounds(
    model: str, method: str, everybody: Population | None = None, **settings: Any
) -> dict[str, Any]:
    """How far a trial, with a checkpoint in between, is from the same trial on the CPU."""
    trial = trial_of(
        model,
        method,
        rounds=3,
        cohort_size=4,
        eval_train_every=1,
        sampler={"name": "random" if method in methods.REFERENCES else "similarity"},
        **settings,
    )
    everybody = everybody or population(model)
    found = []
    for device in (torch.device("cpu"), pretend.DEVICE):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):  # the second goes on from the checkpoint of the first
                two = LocalShards(trial, everybody, num_shards=2, device=device)
                run = TrialRun(trial, everybody, two, Path(folder))
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
    shard = Shard(trial, population(model), pretend.DEVICE)
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
        shard = Shard(trial, population(model), pretend.DEVICE)
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
    shard = Shard(trial, population(model, [size] * num), pretend.DEVICE)
    received = first_message(shard, num)
    shard.block_memory = 2**40
    gc.collect()
    before = sum(pretend.LIVE.values())
    pretend.PEAK[0] = before
    shard.train(received, tuple(range(num)), 0)
    width = min(size, local.get("batch_size", 4))
    own = memory.bytes_per_client(shard.model, shard.method, trial.local, width, size)
    report = num * 4 * (shard.model.dim + 3)
    inputs = num * int(trial.local.num_seen(np.array(size))) * shard.train_examples.x[0].nbytes
    gathered = min(inputs, 2 * memory.gathered_bytes(pretend.DEVICE))
    return {"peak": pretend.PEAK[0] - before - report, "expected": num * own + gathered}


def rows_held() -> list[dict[str, int]]:
    """Examples that each of two shards has on the device, of training and of testing."""
    many = random_population([100] * 20, (8,), CLASSES)
    two = LocalShards(trial_of(), many, num_shards=2, device=pretend.DEVICE).shards
    return [{"train": len(s.train_examples.y), "test": len(s.test_examples.y)} for s in two]


def convolutions(form: str) -> dict[str, Any]:
    """How often a local step of each model convolves and unfolds, and how far it is from the CPU's.

    Each of them, forwards and backwards, is one operation for the whole block.
    """
    os.environ[environment.CONVOLUTIONS] = form
    found = {}
    for model in CONVOLUTIONAL:
        updates = []
        for device in (torch.device("cpu"), pretend.DEVICE):
            shard = Shard(trial_of(model), population(model, [4] * 3), device)
            received = first_message(shard, 3)
            pretend.CALLS.clear()
            updates.append(shard.train(received, (0, 1, 2), 0).update.cpu())
        exact, other = updates
        found[model] = {
            "distance": float((other - exact).norm() / exact.norm()),
            "convolved": pretend.CALLS["aten.convolution.default"],
            "unfolded": pretend.CALLS["aten.im2col.default"],
        }
    del os.environ[environment.CONVOLUTIONS]
    return found


def calibration() -> int:
    """How often a calibration of costs waits for the device, which works on by itself."""
    pretend.TALK.clear()
    cost.calibrate([trial_of("logistic")], lambda text: None, pretend.DEVICE)
    return pretend.TALK["to_host"]


def on_ray() -> dict[str, Any]:
    """A trial whose server and first shard are here, on the device, and whose second is an actor on
    a processor: how far it is from the same in one process.
    """
    trial = trial_of("mlp", "fedcome", rounds=2, cohort_size=4, sampler={"name": "similarity"})
    everybody = population()
    shards.device.pick = lambda share: pretend.DEVICE  # of this process alone
    with (
        connected(MachineOptions(), Console(stderr=True), SHARDS),
        tempfile.TemporaryDirectory() as folder,
    ):
        pool = shards.ShardPool(TrialPlace(2, cpus_per_shard=0.1, is_joint=True))
        there = shards.RayShards(trial, share({"": everybody})[""], pool)
        found = []
        for own in (LocalShards(trial, everybody), there):
            run = TrialRun(trial, everybody, own, Path(folder) / type(own).__name__)
            run.advance(60)
            run.checkpoint()
            found.append(run.server.params)
    exact, other = found
    return {
        "distance": float((other.cpu() - exact).norm() / exact.norm()),
        "device": other.device.type,
    }


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
            **{f"{model}, fedcome": rounds(model, "fedcome") for model in MODELS},
            "conv2, scaffold": rounds("conv2", "scaffold"),
            "mlp, fednova, failures": rounds("mlp", "fednova", **FAILURES),
            "mlp, scaffold, drawn": rounds("mlp", "scaffold", synthetic.drawn(DRAWN)),
        },
        "talk": {
            f"{model}, {method}": [talk(model, method, epochs) for epochs in (1, 2, 5)]
            for model in SMALL
            for method in ("fedavg", "scaffold", "qffl")
        },
        "static_talk": {
            model: [talk(model, "scaffold", epochs, is_static=True) for epochs in (1, 2, 5)]
            for model in SMALL
        },
        "evaluation_talk": [evaluation_talk(num) for num in (1, 2, 5)],
        "lowered": {model: lowered(model) for model in SMALL},
        "block_memory": {
            "plain": block_memory("mlp", "fedavg", {"batch_size": 50}, 100),
            "corrected": block_memory("mlp", "feddc", {"batch_size": 50}, 100),
            "momentum": block_memory("mlp", "feddc", {"batch_size": 50, "momentum": 0.9}, 100),
            "steps": block_memory("logistic", "fedavg", {"batch_size": 50, "steps": 160}, 400),
            **{
                model: block_memory(model, "fedavg", {"batch_size": 10}, 20)
                for model in CONVOLUTIONAL
            },
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
        "convolutions": {form: convolutions(form) for form in ("auto", "grouped", "products")},
        "calibration": calibration(),
    }


if __name__ == "__main__":
    prepare_process()
    with pretend.install():
        answers = on_ray() if sys.argv[1:] == ["on-ray"] else everything()
    sys.stdout.write(json.dumps(answers) + "\n")
