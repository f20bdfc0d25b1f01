"""Local: nobody sends anything. Every client trains alone, all from the same start.

A reference, not a federated method: what clients would have without each other. Each is tested with
its own params, and the server's stay those of the start.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, OnlyParams, Report


class Local(Hyperparameters):
    """Nothing to set."""

    name: Literal["local"] = "local"


class ClientState(NamedTuple):
    way: Tensor  # from the common start to its own params


def build(hp: Local) -> Method[OnlyParams, OnlyParams, ClientState]:
    def init_client(like: Tensor) -> ClientState:
        return ClientState(torch.zeros_like(like))

    def start(params: Tensor, client: ClientState) -> Tensor:
        return params + client.way

    def carry(received: OnlyParams, client: ClientState, report: Report) -> ClientState:
        return ClientState(client.way + report.update)

    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        return server, {}

    return Method(
        init_server=parts.only_params,
        init_client=init_client,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=carry,
        aggregate=aggregate,
        start=start,
        communicates=False,
    )
