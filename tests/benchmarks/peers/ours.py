"""fedcome_ray, as `python -m fedcome_ray.run` runs a trial, without MLflow.

Forms: `in_process`, and `ray`, on two shards. Imports are where the command has them: Ray starts
beside those that take long.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.importing import large_modules
from tests.benchmarks.peers.task import ROUNDS, Task, Workload

if TYPE_CHECKING:
    from fedcome_ray.experiments.trial import Trial
    from fedcome_ray.hyperparameters import Hyperparameters

SEED = 0  # of the params that all peers start from


def run(task: Task) -> None:
    if task.form == "in_process":
        run_on(MachineOptions(), task)
        return
    with large_modules():
        from fedcome_ray.runtime.connection import SHARDS, begun

    machine = MachineOptions(num_shards=2)
    with begun(machine, SHARDS):
        run_on(machine, task)


def run_on(machine: MachineOptions, task: Task) -> None:
    with large_modules():
        from rich.console import Console

        from fedcome_ray import datasets, metrics
        from fedcome_ray.launch.single import ONLY, SingleRequest, shards_of
        from fedcome_ray.trials.run import TrialRun

    trial = trial_of(task.workload, task.path)
    populations = {ONLY: datasets.load(trial.data)}
    with tempfile.TemporaryDirectory() as scratch:
        request = SingleRequest(trial, Locations(Path(scratch), ""), machine, is_tracked=False)
        with shards_of(request, populations, Console(stderr=True)) as shards:
            under_way = TrialRun(trial, shards.population, shards, request.folder)
            while not under_way.is_finished:
                for one in under_way.advance(seconds=0):  # one after the other
                    if one.number > 0:
                        task.report(one.number, one.metrics[metrics.ACCURACY])
            under_way.finish()


def trial_of(workload: Workload, path: Path) -> "Trial":
    from fedcome_ray.experiments.trial import Trial

    local = {"lr": workload.lr, "batch_size": workload.batch_size}
    local |= {"lr_decay": 1.0, "weight_decay": 0.0}
    settings = {"data": {"dataset": f"npz:{path}"}, "model": model_of(workload), "local": local}
    return Trial.model_validate({**settings, "rounds": ROUNDS, "seed": SEED})


def model_of(workload: Workload) -> "Hyperparameters":
    from fedcome_ray.models.convolutional import Conv2
    from fedcome_ray.models.dense import MLP

    return {"mlp": MLP(), "conv2": Conv2(dropout=0.0)}[workload.model]
