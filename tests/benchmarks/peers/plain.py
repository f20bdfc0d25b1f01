"""Plain PyTorch, client after client or all stacked: what a researcher writes without a framework.

Forms: `tuned`, a loop over preloaded tensors; `dataloader`, the loop as it is first written; `bmm`,
all clients' params stacked and multiplied in batched products, for the MLP only.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from tests import plain_torch
from tests.benchmarks.peers.task import ROUNDS, Task


def run(task: Task) -> None:
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(array) for array in task.train())
    test = [torch.from_numpy(array) for array in task.test()]
    module, params = task.module(), torch.from_numpy(task.start())
    lr, batch_size = task.workload.lr, task.workload.batch_size
    batches_of = loader if task.form == "dataloader" else shuffled
    for number in range(1, ROUNDS + 1):
        if task.form == "bmm":
            params = stacked_round(module, params, x, y, batch_size, lr)
        else:
            trained = [
                plain_torch.train(module, params, batches_of(*own, batch_size), lr)
                for own in zip(x, y, strict=True)
            ]
            params = torch.stack(trained).mean(0)
        vector_to_parameters(params, module.parameters())
        task.report(number, accuracy(module, *test))


def loader(x: Tensor, y: Tensor, batch_size: int) -> Iterable[tuple[Tensor, Tensor]]:
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def shuffled(x: Tensor, y: Tensor, batch_size: int) -> Iterable[tuple[Tensor, Tensor]]:
    for rows in torch.randperm(len(y)).split(batch_size):
        yield x[rows], y[rows]


def stacked_round(
    module: nn.Module, start: Tensor, x: Tensor, y: Tensor, batch_size: int, lr: float
) -> Tensor:
    """Of the MLP, all clients in each product."""
    clients, size = y.shape
    vector_to_parameters(start, module.parameters())
    params = [
        param.detach().expand(clients, *param.shape).clone().requires_grad_()
        for param in module.parameters()
    ]
    weight1, bias1, weight2, bias2 = params
    rows = torch.rand(clients, size).argsort(1)
    everyone = torch.arange(clients)[:, None]
    for batch in rows.split(batch_size, dim=1):
        examples = x[everyone, batch].flatten(2)
        hidden = torch.baddbmm(bias1[:, None], examples, weight1.mT).relu()
        logits = torch.baddbmm(bias2[:, None], hidden, weight2.mT)
        labels = y[everyone, batch]
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        gradients = torch.autograd.grad(loss / batch.shape[1], params)
        with torch.no_grad():
            for param, gradient in zip(params, gradients, strict=True):
                param.sub_(gradient, alpha=lr)
    return parameters_to_vector(param.mean(0) for param in params).detach()


def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    module.eval()
    with torch.inference_mode():
        return float((module(x).argmax(1) == y).float().mean())
