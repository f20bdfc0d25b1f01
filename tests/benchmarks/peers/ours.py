"""fedcome_ray, as `python -m fedcome_ray.run` runs a trial, without MLflow.

Forms: `in_process`, and `ray`, on two shards.
"""

import tempfile
from pathlib import Path

from rich.console import Console

from fedcome_ray import datasets, metrics
from fedcome_ray.console.options import Locations, MachineOptions
from fedcome_ray.experiments.trial import Trial
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.launch.single import ONLY, SingleRequest, shards_of
from fedcome_ray.models.convolutional import Conv2
from fedcome_ray.models.dense import MLP
from fedcome_ray.trials.run import TrialRun
from tests.benchmarks.peers.task import ROUNDS, Task, Workload

SEED = 0  # of the params that all peers start from
NUM_SHARDS = {"in_process": None, "ray": 2}


def run(task: Task) -> None:
    trial = trial_of(task.workload, task.path)
    populations = {ONLY: datasets.load(trial.data)}
    machine = MachineOptions(num_shards=NUM_SHARDS[task.form])
    with tempfile.TemporaryDirectory() as scratch:
        request = SingleRequest(trial, Locations(Path(scratch), ""), machine, is_tracked=False)
        with shards_of(request, populations, Console(stderr=True)) as shards:
            under_way = TrialRun(trial, shards.population, shards, request.folder)
            while not under_way.is_finished:
                for one in under_way.advance(seconds=0):  # one after the other
                    if one.number > 0:
                        task.report(one.number, one.metrics[metrics.ACCURACY])
            under_way.finish()


def trial_of(workload: Workload, path: Path) -> Trial:
    local = {"lr": workload.lr, "batch_size": workload.batch_size}
    local |= {"lr_decay": 1.0, "weight_decay": 0.0}
    settings = {"data": {"dataset": f"npz:{path}"}, "model": model_of(workload), "local": local}
    return Trial.model_validate({**settings, "rounds": ROUNDS, "seed": SEED})


def model_of(workload: Workload) -> Hyperparameters:
    return {"mlp": MLP(), "conv2": Conv2(dropout=0.0)}[workload.model]
