"""FedDC: clients track how far their params drift from the server's, and train around it.

Clients minimise F_i(y) + alpha/2 |y + h_i - x|^2 + <y, s - s_i>, where h_i is the client's drift
and s_i the mean gradient of its last local training.

Gao et al., FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction,
CVPR 2022. https://arxiv.org/abs/2203.11751
"""

from typing import Literal, NamedTuple

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Affine, Cohort, Info, Method, Report, affine


class FedDC(Hyperparameters):
    """Strength of the coupling between a client's params, its drift and the server's params."""

    name: Literal["feddc"] = "feddc"
    alpha: PositiveFloat = 0.1
    """Strength of the coupling."""


class ServerState(NamedTuple):
    params: Tensor  # x
    gradient: Tensor  # s, the mean of all s_i
    drift: Tensor  # the mean of all h_i
    num_clients: int  # N


class Received(NamedTuple):
    params: Tensor  # x
    gradient: Tensor  # s


class ClientState(NamedTuple):
    gradient: Tensor  # s_i
    drift: Tensor  # h_i


def build(hp: FedDC) -> Method[ServerState, Received, ClientState]:
    def init_server(params: Tensor, num_clients: int) -> ServerState:
        zeros = torch.zeros_like
        return ServerState(params, zeros(params), zeros(params), num_clients)

    def init_client(like: Tensor) -> ClientState:
        return ClientState(torch.zeros_like(like), torch.zeros_like(like))

    def broadcast(server: ServerState) -> Received:
        return Received(server.params, server.gradient)

    @affine
    def correct(received: Received, client: ClientState) -> Affine:
        # alpha (y + h_i - x) + s - s_i
        common = received.gradient - hp.alpha * received.params
        offset = torch.add(common - client.gradient, client.drift, alpha=hp.alpha)
        return Affine(pull=hp.alpha, offset=offset)

    def carry(received: Received, client: ClientState, report: Report) -> ClientState:
        # With the learning rate of this round, as in SCAFFOLD; official code has that of the first.
        return ClientState(
            gradient=report.add_mean_gradient(client.gradient - received.gradient),
            drift=client.drift + report.update,
        )

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        # By `carry` s_i changes by mean_gradient - s, and h_i by the update.
        mean_update = report.plain_mean
        share = len(cohort) / server.num_clients
        change = share * (report.cohort_gradient - server.gradient)
        drift = server.drift + share * mean_update
        # The drift of all clients, as in the official code; the paper has that of the cohort.
        move = mean_update + drift
        info = {"drift_norm": float(drift.norm())}
        return server._replace(
            params=server.params + move, gradient=server.gradient + change, drift=drift
        ), info

    return Method(init_server, init_client, broadcast, correct, carry, aggregate)
