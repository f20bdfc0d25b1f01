"""FedAdam: the server follows the mean update with Adam.

Reddi et al., Adaptive Federated Optimization, ICLR 2021. https://arxiv.org/abs/2003.00295
(Algorithm 2)
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report

Share = Annotated[float, Field(ge=0, lt=1)]


class Adaptive(Hyperparameters):
    """The settings of an adaptive server; betas and tau as in the paper's experiments."""

    server_lr: PositiveFloat = 0.01  # eta
    """Learning rate of the server."""
    beta1: Share = 0.9
    """Weight of the past in the momentum."""
    beta2: Share = 0.99
    """Weight of the past in the variance."""
    tau: PositiveFloat = 1e-3
    """Degree of adaptivity: coordinates that move less than this are not sped up further."""


class FedAdam(Adaptive):
    """Adam at the server."""

    name: Literal["fedadam"] = "fedadam"


class ServerState(NamedTuple):
    params: Tensor  # x
    momentum: Tensor  # m
    variance: Tensor  # v


def build(hp: FedAdam) -> Method[ServerState, OnlyParams, Nothing]:
    def forget_slowly(variance: Tensor, square: Tensor) -> Tensor:
        return hp.beta2 * variance + (1 - hp.beta2) * square

    return adaptive(hp, forget_slowly)


def adaptive(
    hp: Adaptive, next_variance: Callable[[Tensor, Tensor], Tensor]
) -> Method[ServerState, OnlyParams, Nothing]:
    """A server that scales each coordinate of its move; optimisers differ in `next_variance`."""

    def init_server(params: Tensor, num_clients: int) -> ServerState:
        return ServerState(params, torch.zeros_like(params), torch.full_like(params, hp.tau**2))

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        mean_update = report.weighted_mean
        momentum = hp.beta1 * server.momentum + (1 - hp.beta1) * mean_update
        variance = next_variance(server.variance, mean_update.square())
        # No correction for the zeros that the momentum starts from: the paper has none.
        move = hp.server_lr * momentum / (variance.sqrt() + hp.tau)
        return ServerState(server.params + move, momentum, variance), {}

    return Method(
        init_server=init_server,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
