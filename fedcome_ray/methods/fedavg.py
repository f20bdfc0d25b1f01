"""FedAvg: average what clients learn, weighted by how much data they have.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data,
AISTATS 2017. https://arxiv.org/abs/1602.05629
"""

from typing import Literal

from pydantic import PositiveFloat

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report


class FedAvg(Hyperparameters):
    """Plain averaging; `server_lr` is the control for methods that take longer steps."""

    name: Literal["fedavg"] = "fedavg"
    server_lr: PositiveFloat = 1.0
    """Factor of the mean update."""


def build(hp: FedAvg) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        return OnlyParams(server.params + hp.server_lr * report.weighted_mean), {}

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
