"""pfl-research, in one process: its `SimulatedBackend` and `FederatedAveraging`.

Users' datasets are made once, so that the batches, which pfl cuts in a fixed order, are cached.
"""

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted, get_overall_value
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.peers.task import ROUNDS, Task


class Net(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        hits = (self.layers(x).argmax(1) == y).sum().item()
        return {"accuracy": Weighted(hits, len(y))}


class EveryRound(TrainingProcessCallback):
    """pfl's own central evaluation leaves the first round out."""

    def __init__(self, task: Task, dataset: PyTorchTensorDataset) -> None:
        self._task = task
        self._dataset = dataset

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        found = model.evaluate(self._dataset)
        accuracy = get_overall_value(found[StringMetricName("accuracy")])
        self._task.report(central_iteration + 1, accuracy)
        return False, Metrics()


def run(task: Task) -> None:
    torch.set_num_threads(1)
    users = [
        PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y)))
        for x, y in zip(*task.train(), strict=True)
    ]
    sampler = get_user_sampler("minimize_reuse", range(len(users)))
    data = FederatedDataset(users.__getitem__, sampler)
    test = PyTorchTensorDataset(tuple(torch.from_numpy(array) for array in task.test()))
    net = Net(task.module())
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS,  # of users, which we do not ask for
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_batch_size=task.workload.batch_size,
            local_num_epochs=1,
            local_learning_rate=task.workload.lr,
        ),
        NNEvalHyperParams(local_batch_size=None),
        [EveryRound(task, test)],
    )
