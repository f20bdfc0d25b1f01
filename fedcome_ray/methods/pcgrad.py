"""PCGrad: project each update, in random order, off those that it conflicts with; then average.

Yu et al., Gradient Surgery for Multi-Task Learning, NeurIPS 2020.
https://arxiv.org/abs/2001.06782 (Algorithm 1)
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeInt
from torch import Tensor

from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.methods.weighting import Weighted, weighted_move
from fedcome_ray.numerics.geometry import Floats, nonzero
from fedcome_ray.numerics.randomness import Stream, client_keys, fold

Indices = NDArray[np.int64]


class PCGrad(Weighted):
    """Projections in a random order."""

    name: Literal["pcgrad"] = "pcgrad"
    seed: NonNegativeInt = 0
    """Of the random orders; like that of the data, not the trial's."""


class ServerState(NamedTuple):
    params: Tensor
    round_index: int


def build(hp: PCGrad) -> Method[ServerState, OnlyParams, Nothing]:
    def init_server(params: Tensor, num_clients: int) -> ServerState:
        return ServerState(params, 0)

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        orders = random_orders(hp.seed, server.round_index, cohort)
        move, info = weighted_move(hp, report, lambda gram, shares: shares @ project(gram, orders))
        return ServerState(server.params + move, server.round_index + 1), info

    return Method(
        init_server=init_server,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )


def random_orders(seed: int, round_index: int, cohort: Cohort) -> Indices:
    """For each client of the cohort, a row, an order of its members: positions, any as likely."""
    clients = torch.tensor(cohort)
    keys = client_keys(seed, Stream.PROJECTION, round_index, clients)
    return fold(keys.unsqueeze(-1), clients).argsort(dim=-1).numpy()


def project(gram: Floats, orders: Indices) -> Floats:
    """The matrix that makes projected updates from raw ones, all of them projected together.

    Each update is projected off the raw updates, in the order of its row, whenever it conflicts.
    """
    mixing, own, squares = np.eye(len(gram)), np.arange(len(gram)), nonzero(gram.diagonal())
    for others in orders.T:
        products = np.einsum("ij,ij->i", mixing, gram[others])
        conflicts = (products < 0) & (others != own)
        rows, columns = own[conflicts], others[conflicts]
        mixing[rows, columns] -= products[rows] / squares[columns]
    return mixing
