"""SCAFFOLD: control variates cancel the drift of each client's gradient.

Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning,
ICML 2020. https://arxiv.org/abs/1910.06378 (Algorithm 1, option II)
"""

from typing import Literal, NamedTuple

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods.method import Affine, Cohort, Info, Method, Report, affine


class Scaffold(Hyperparameters):
    """The paper recommends a server learning rate of 1 and tunes nothing else."""

    name: Literal["scaffold"] = "scaffold"
    server_lr: PositiveFloat = 1.0  # eta_g
    """Factor of the mean update."""


class ServerState(NamedTuple):
    params: Tensor  # x
    control: Tensor  # c, the mean of all c_i
    num_clients: int  # N


class Received(NamedTuple):
    params: Tensor  # x
    control: Tensor  # c


class ClientState(NamedTuple):
    control: Tensor  # c_i


def build(hp: Scaffold) -> Method[ServerState, Received, ClientState]:
    def init_server(params: Tensor, num_clients: int) -> ServerState:
        return ServerState(params, torch.zeros_like(params), num_clients)

    def init_client(like: Tensor) -> ClientState:
        return ClientState(torch.zeros_like(like))

    def broadcast(server: ServerState) -> Received:
        return Received(server.params, server.control)

    @affine
    def correct(received: Received, client: ClientState) -> Affine:
        return Affine(offset=received.control - client.control)

    def carry(received: Received, client: ClientState, report: Report) -> ClientState:
        # c_i <- c_i - c + (x - y_i) / (K lr), with the learning rate of this round: official codes
        # divide by the undecayed one, which shrinks the estimate more and more.
        return ClientState(report.add_mean_gradient(client.control - received.control))

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        # The change of each c_i needs no upload: by `carry` it is mean_gradient - c.
        share = len(cohort) / server.num_clients
        change = share * (report.cohort_gradient - server.control)
        move = hp.server_lr * report.plain_mean
        control = server.control + change
        info = {"control_norm": float(control.norm())}
        return server._replace(params=server.params + move, control=control), info

    return Method(init_server, init_client, broadcast, correct, carry, aggregate)
