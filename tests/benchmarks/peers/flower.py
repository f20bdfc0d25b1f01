"""Flower on Ray, a CPU for each of two actors: message API, `FedAvg`, evaluation at the server.

Clients train in the tuned loop of `plain`; an actor reads the examples once and keeps its module.
"""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn.utils import parameters_to_vector

from tests import plain_torch
from tests.benchmarks.peers.plain import accuracy, shuffled
from tests.benchmarks.peers.task import ROUNDS, Task

BACKEND = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}


def run(task: Task) -> None:
    torch.set_num_threads(1)
    server_app, client_app = ServerApp(), ClientApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        module = task.module()
        test = tuple(torch.from_numpy(array) for array in task.test())

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
            module.load_state_dict(arrays.to_torch_state_dict())
            found = accuracy(module, *test)
            if number > 0:
                task.report(number, found)
            return MetricRecord({"accuracy": found})

        FedAvg(fraction_evaluate=0.0, min_available_nodes=task.workload.num_clients).start(
            grid, ArrayRecord(module.state_dict()), num_rounds=ROUNDS, evaluate_fn=evaluate
        )

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        module, x, y = kept(task)
        own = int(context.node_config["partition-id"])
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        start = parameters_to_vector(module.parameters()).detach()
        batches = shuffled(x[own], y[own], task.workload.batch_size)
        plain_torch.train(module, start, batches, task.workload.lr)
        found = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y[own])}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    run_simulation(server_app, client_app, task.workload.num_clients, backend_config=BACKEND)


@cache
def kept(task: Task) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Of this process."""
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(array) for array in task.train())
    return task.module(), x, y
