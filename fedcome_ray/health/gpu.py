"""Does a GPU compute what the processor does, and how fast: `python -m fedcome_ray.health.gpu`.

A process of its own, like the other probe. It prints a table to paste and ends with 1 if something
is wrong; with `--json` it prints one line for the doctor, who judges. Every function takes the
device, so that all but the shares of memory can be tried without a GPU.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from fedcome_ray import methods, models
from fedcome_ray.clients.company import CLASSES, dependent_kinds
from fedcome_ray.clients.rehearsal import first_message, random_population
from fedcome_ray.clients.shard import Shard
from fedcome_ray.errors import FedcomeError
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.federation.round import run_round
from fedcome_ray.federation.server import Server
from fedcome_ray.federation.shards import LocalShards
from fedcome_ray.models.convolutional import (
    Conv2,
    build_conv2,
    convolve_by_library,
    convolve_by_products,
)
from fedcome_ray.numerics import device
from fedcome_ray.numerics.libraries import device_name

SIZES = (1, 2, 3, 20, 20, 33, 49, 50)
IMAGE = (1, 28, 28)
ROUNDS = 2
CLOSE = 1e-3
"""Of the way that params went: rounding of float32 in another order, some local steps long."""
SPEED_SECONDS = 3.0
SHARE_SECONDS = 120
PROCESSES = 4  # that share the GPU
FILLED = 0.9  # of what each may have

TIMED: dict[str, tuple[dict[str, Any], int]] = {
    "dense": ({"model": {"name": "mlp"}}, 100),
    "convolutional": ({"model": {"name": "conv2"}, "local": {"batch_size": 10}}, 20),
}


FORMS = {"grouped": convolve_by_library, "products": convolve_by_products}
TRAINED_BY = {
    "engine": "engine",
    "grouped": "grouped convolutions",
    "products": "convolutions as products",
    "captured": "captured steps",
    "loop": "plain loop",
}


class Gpu(TypedDict):
    """What was found."""

    name: str
    memory: int
    distances: dict[str, float]  # between GPU and processor, by model and method
    not_repeated: list[str]  # kinds that gave other bits the second time
    dependent_kinds: list[str]  # of training, whose bits depend on the company
    examples_per_second: dict[str, dict[str, float]]  # by kind of model, then by who trains
    sharing_problem: str | None


def examine(where: torch.device) -> Gpu:
    """Everything about the GPU that this process computes on."""
    return {
        "name": device_name(where),
        "memory": device.usable_gpus()[0].memory,
        "distances": {name: distance(trial, where) for name, trial in compared().items()},
        "not_repeated": [name for name, trial in repeated().items() if not repeats(trial, where)],
        "dependent_kinds": dependent_kinds(where),
        "examples_per_second": {kind: speeds(kind, where) for kind in TIMED},
        "sharing_problem": sharing_problem(),
    }


def compared() -> dict[str, Trial]:
    """Every model, and every federated method on a small one."""
    by_model: dict[str, Any] = {name: {"model": {"name": name}} for name in models.REGISTRY}
    small = {"name": "mlp", "hidden": [16]}
    by_method: dict[str, Any] = {
        name: {"model": small, "method": {"name": name}, "sampler": {"name": "similarity"}}
        for name in methods.REGISTRY
        if name not in methods.REFERENCES
    }
    settings = {**by_model, **by_method}
    return {name: Trial.model_validate({"cohort_size": 5, **s}) for name, s in settings.items()}


def repeated() -> dict[str, Trial]:
    found = compared()
    return {name: found[name] for name in ("mlp", "conv2", "conv4", "scaffold", "qffl")}


def distance(trial: Trial, where: torch.device) -> float:
    """How far a short trial on the device ends from the same on the processor, of its way."""
    start, exact = trained(trial, device.CPU)
    _, other = trained(trial, where)
    return float((other - exact).norm() / (exact - start).norm())


def repeats(trial: Trial, where: torch.device) -> bool:
    """Whether the same trial in the same layout gives the same bits again."""
    return torch.equal(trained(trial, where)[1], trained(trial, where)[1])


def trained(trial: Trial, where: torch.device) -> tuple[Tensor, Tensor]:
    """The params before and after some rounds."""
    population = random_population(SIZES, IMAGE, CLASSES)
    shards = LocalShards(trial, population, device=where)
    start = shards.shards[0].model.init(0)
    server = Server(trial, start.to(where), population.num_clients)
    for _ in range(ROUNDS):
        run_round(server, shards)
    return start, server.params.cpu()


def speeds(kind: str, where: torch.device) -> dict[str, float]:
    """Examples a second: of our engine as it is, with each form of convolutions alone, with
    captured steps; of a plain loop over clients.
    """
    settings, num_clients = TIMED[kind]
    population = random_population([200] * num_clients, IMAGE, num_classes=10)
    num_examples = len(population.train.order)
    cohort = tuple(range(num_clients))
    shard = Shard(Trial.model_validate(settings), population, where)
    received = first_message(shard, num_clients)

    def train() -> object:
        return shard.train(received, cohort, 0).update.cpu()  # waits for the device

    found = {"engine": num_examples / _seconds(train)}
    usual = shard.trainer
    if kind == "convolutional":
        for form, convolve in FORMS.items():
            shard.trainer = replace(usual, model=build_conv2(Conv2(), IMAGE, 10, convolve))
            found[form] = num_examples / _seconds(train)
        shard.trainer = usual
    shard.take_static_steps()
    found["captured"] = num_examples / _seconds(train)
    loop = plain_loop(kind, shard, num_clients)
    return {**found, "loop": num_examples / _seconds(loop)}


def _seconds(work: Callable[[], object]) -> float:
    """Of one run, once warm."""
    work()
    start, runs = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < SPEED_SECONDS:
        work()
        runs += 1
    return elapsed / runs


def plain_loop(kind: str, shard: Shard, num_clients: int) -> Callable[[], object]:
    """One client after the other with modules and SGD of PyTorch, on tensors on the device."""
    examples, local = shard.train_examples, shard.trial.local
    module = _modules()[kind]().to(shard.device)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    batch = local.batch_size or len(examples.y)

    def train() -> object:
        for client in range(num_clients):
            module.load_state_dict(start)
            decay = local.weight_decay
            optimiser = torch.optim.SGD(module.parameters(), local.lr, weight_decay=decay)
            first, last = examples.offsets[client : client + 2]
            rows = first + torch.randperm(int(last - first), device=shard.device)
            for some in rows.split(batch):
                optimiser.zero_grad()
                logits = module(examples.x[some])
                nn.functional.cross_entropy(logits, examples.y[some]).backward()
                optimiser.step()
        return [tensor.cpu() for tensor in module.parameters()]

    return train


def _modules() -> dict[str, Callable[[], nn.Module]]:
    """The timed models as modules."""
    return {
        "dense": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)
        ),
        "convolutional": lambda: nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.5),
            nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10),
        ),
    }  # fmt: skip


def sharing_problem() -> str | None:
    """Why several processes cannot fill their shares of the GPU at the same time, if so."""
    command = [sys.executable, "-m", "fedcome_ray.health.gpu", "--share", str(1 / PROCESSES)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "filled":
                _, errors = process.communicate(timeout=SHARE_SECONDS)
                return (errors.strip().splitlines() or ["it ended without a word"])[-1]
        return None
    finally:
        for process in processes:
            process.kill()
            process.wait()


def fill_share(share: float) -> None:
    """Take what a process with this share may have, say so, and hold it until stdin ends."""
    where = device.pick(share)
    held = torch.ones(int(FILLED * device.memory_for(where)), dtype=torch.uint8, device=where)
    torch.cuda.synchronize()
    sys.stdout.write("filled\n")
    sys.stdout.flush()
    sys.stdin.read()
    del held


def faults(found: Gpu) -> list[str]:
    """What is wrong: of numbers, of bits, of memory."""
    far = [f"{name} by {d:.1e}" for name, d in found["distances"].items() if not d < CLOSE]
    lines = [f"far from the processor: {', '.join(far)}"] if far else []
    if found["not_repeated"]:
        lines.append(f"other bits the second time: {', '.join(found['not_repeated'])}")
    if found["sharing_problem"] is not None:
        lines.append(f"{PROCESSES} processes cannot share it: {found['sharing_problem']}")
    return lines


def table(found: Gpu) -> str:
    """To paste into a message."""
    lines = [
        f"{found['name']}, {found['memory'] / 2**30:.0f} GiB, PyTorch {torch.__version__}",
        "",
        "| model or method | distance to the processor |",
        "|---|---|",
        *(f"| {name} | {d:.1e} |" for name, d in found["distances"].items()),
        "",
        "| examples a second of | " + " | ".join(TRAINED_BY.values()) + " |",
        "|---|" + "---|" * len(TRAINED_BY),
        *(
            f"| {kind} | {' | '.join(_rate(rates.get(who)) for who in TRAINED_BY)} |"
            for kind, rates in found["examples_per_second"].items()
        ),
        "",
        f"bits depend on company: {', '.join(found['dependent_kinds']) or 'no'}",
        *(f"WRONG: {fault}" for fault in faults(found)),
    ]
    return "\n".join(lines)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"


def main(words: list[str]) -> int:
    device.prepare_process()
    if words[:1] == ["--share"]:
        fill_share(float(words[1]))
        return 0
    if not device.usable_gpus():
        sys.stderr.write(f"no GPU to examine: {device.no_gpu_because()}\n")
        return 2
    found = examine(device.wished("gpu"))
    if words == ["--json"]:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    sys.stdout.write(table(found) + "\n")
    return 1 if faults(found) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FedcomeError as error:
        sys.exit(f"error: {error}")
