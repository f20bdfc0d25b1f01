"""FedDyn: each client's risk is regularised so that all of them rest where the mean risk does.

Clients minimise F_i(y) - <g_i, y> + alpha/2 |y - x|^2, where g_i is the gradient of F_i at which
the client came to rest the last time.

Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.
https://arxiv.org/abs/2111.04263
"""

from typing import Literal, NamedTuple

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Affine, Cohort, Info, Method, OnlyParams, Report, affine


class FedDyn(Hyperparameters):
    """Strength of the regulariser."""

    name: Literal["feddyn"] = "feddyn"
    alpha: PositiveFloat = 0.01
    """Strength of the regulariser that clients adapt from round to round."""


class ServerState(NamedTuple):
    params: Tensor  # x, where clients start and what is evaluated: the "cloud model"
    correction: Tensor  # h, the mean of all g_i
    num_clients: int  # N


class ClientState(NamedTuple):
    gradient: Tensor  # g_i


def build(hp: FedDyn) -> Method[ServerState, OnlyParams, ClientState]:
    def init_server(params: Tensor, num_clients: int) -> ServerState:
        return ServerState(params, torch.zeros_like(params), num_clients)

    def init_client(like: Tensor) -> ClientState:
        return ClientState(torch.zeros_like(like))

    @affine
    def correct(received: OnlyParams, client: ClientState) -> Affine:
        # alpha (y - x) - g_i: the whole regulariser is in the gradient. The official code hides
        # half of it in the optimiser's weight decay, where clipping does not see it.
        return Affine(pull=hp.alpha, offset=-hp.alpha * received.params - client.gradient)

    def carry(received: OnlyParams, client: ClientState, report: Report) -> ClientState:
        # Where the client rests, grad F_i = g_i - alpha (y_i - x).
        return ClientState(torch.sub(client.gradient, report.update, alpha=hp.alpha))

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        mean_update = report.plain_mean
        share = len(cohort) / server.num_clients
        correction = server.correction - hp.alpha * share * mean_update
        move = mean_update - correction / hp.alpha
        info = {"correction_norm": float(correction.norm())}
        return server._replace(params=server.params + move, correction=correction), info

    return Method(init_server, init_client, parts.send_params, correct, carry, aggregate)
