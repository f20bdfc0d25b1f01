"""FedMDFG: multi-gradient descent with a further objective, that all clients have the same loss.

The move lowers, to first order, the losses of the cohort, of those who took part in the round
before and are absent now, and, if the losses are too unequal, their angle to equal ones.

Pan et al., FedMDFG: Federated Learning with Multi-Gradient Descent and Fair Guidance, AAAI 2023.
https://doi.org/10.1609/aaai.v37i8.26122 (without its line search for the step size)
"""

import math
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.methods.mgda import shortest
from fedcome_ray.numerics import geometry
from fedcome_ray.numerics.geometry import Floats


class FedMDFG(Hyperparameters):
    """How unequal losses may be."""

    name: Literal["fedmdfg"] = "fedmdfg"
    theta: Annotated[float, Field(gt=0, lt=90)] = 11.25
    """Degrees between the losses and equal ones above which they are to come nearer."""
    server_lr: PositiveFloat = 1.0
    """Factor of the move, which is as long as the mean of the updates scaled to one length."""


class ServerState(NamedTuple):
    params: Tensor
    clients: Tensor  # [cohort], of the round before
    updates: Tensor  # [cohort, dim], as they were sent


def build(hp: FedMDFG) -> Method[ServerState, OnlyParams, Nothing]:
    def init_server(params: Tensor, num_clients: int) -> ServerState:
        nobody = torch.zeros(0, dtype=torch.int64, device=params.device)
        return ServerState(params, nobody, params.new_zeros(0, len(params)))

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        clients = torch.tensor(cohort, device=report.update.device)
        absent = server.updates[~torch.isin(server.clients, clients)]
        updates = torch.cat((report.update, absent)) if len(absent) else report.update
        cosines, norms = geometry.normalise(
            geometry.gram_matrix(updates) if len(absent) else report.gram
        )
        guidance, angle = fair_guidance(report.loss.double().squeeze(-1).numpy(force=True))
        if angle <= hp.theta:
            guidance = np.zeros(len(cohort))
        # Objectives are combinations of updates scaled to one length: nobody counts more by a
        # long update. Those without a direction are none.
        rows = [*np.eye(len(norms)), np.append(guidance, np.zeros(len(absent)))]
        objectives = np.array([row for row in rows if geometry.length(row, cosines) > 0.0])
        common = np.zeros(len(norms))
        if len(objectives):
            common = shortest(objectives @ cosines @ objectives.T) @ objectives
        mean_norm = norms[: len(cohort)].mean()
        mean = np.append(np.full(len(cohort), mean_norm / len(cohort)), np.zeros(len(absent)))
        own_length = geometry.length(common, cosines)
        factor = hp.server_lr * geometry.length(mean, cosines) / own_length if own_length else 0.0
        weights = factor * common / geometry.nonzero(norms)
        move = geometry.weighted_sum(torch.from_numpy(weights), updates)
        info = {"loss_angle": angle}
        return ServerState(server.params + move, clients, report.update), info

    return Method(
        init_server=init_server,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
        uses_loss=True,
    )


def fair_guidance(loss: Floats) -> tuple[Floats, float]:
    """How clients' losses should change to become more equal, and their angle to equal ones.

    The first, of length 1, is the direction in which minus the cosine of that angle rises fastest.
    """
    equal = np.full(len(loss), len(loss) ** -0.5)
    losses = loss / (float(np.linalg.norm(loss)) or 1.0)
    cosine = float(equal @ losses)
    guidance = cosine * losses - equal
    length = float(np.linalg.norm(guidance))
    return guidance / (length or 1.0), math.degrees(math.atan2(length, cosine))
