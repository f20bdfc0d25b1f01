"""fluke, in one process: its own clients and server, models kept in memory.

Of its evaluation only the accuracy is computed, on the whole test set at once.
"""

# ruff: noqa: E402

import runpy

import torch

from tests.benchmarks.peers.task import CLASSES, ROOT, ROUNDS, Task

# Its torchvision need not fit this torch; what we do then is a file that needs none of our others.
REMEDY = runpy.run_path(str(ROOT / "fedcome_ray" / "datasets" / "torchvision_import.py"))
REMEDY["torchvision_datasets"]()

from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.server import Server
from fluke.utils import FederationObserver
from torch.nn import CrossEntropyLoss
from torchmetrics import Accuracy


class EveryRound(FederationObserver):
    def __init__(self, task: Task) -> None:
        self._task = task

    def server_evaluation(self, round: int, eval_type: str, evals: dict, **_: object) -> None:
        self._task.report(round, evals["accuracy"])


def run(task: Task) -> None:
    torch.set_num_threads(1)
    top1 = Accuracy(task="multiclass", num_classes=CLASSES)
    environment = FlukeENV()
    environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=CLASSES, accuracy=top1))
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
    optimiser = OptimizerConfigurator({"name": "SGD", "lr": task.workload.lr})
    clients = [
        Client(
            index=index,
            train_set=FastDataLoader(
                torch.from_numpy(x),
                torch.from_numpy(y),
                num_labels=CLASSES,
                batch_size=task.workload.batch_size,
                shuffle=True,
            ),
            test_set=None,
            optimizer_cfg=optimiser,
            loss_fn=CrossEntropyLoss(),
            local_epochs=1,
        )
        for index, (x, y) in enumerate(zip(*task.train(), strict=True))
    ]
    x, y = (torch.from_numpy(array) for array in task.test())
    test = FastDataLoader(x, y, num_labels=CLASSES, batch_size=len(y))
    server = Server(task.module(), test, clients, weighted=True)
    federation = FedAVG(len(clients), None, {}, clients=clients, server=server)
    federation.set_callbacks(EveryRound(task))
    federation.run(n_rounds=ROUNDS, eligible_perc=1.0)
