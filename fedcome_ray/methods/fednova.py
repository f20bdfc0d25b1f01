"""FedNova: clients count by their data, not by how many local steps they happen to make.

Updates are divided by the length of their path before they are averaged, and the mean is followed
for the mean length of the paths.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020. https://arxiv.org/abs/2007.07481
"""

from typing import Literal

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report


class FedNova(Hyperparameters):
    """Nothing to choose: a path's length is the sum of its learning rates."""

    name: Literal["fednova"] = "fednova"


def build(hp: FedNova) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        path = report.total_lr.squeeze(-1)  # tau_i lr
        mean_path = report.weights @ path  # tau_eff lr
        move = report.weighted_sum(mean_path * (report.weights / path))
        info = {"mean_path": float(mean_path)}
        return OnlyParams(server.params + move), info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
