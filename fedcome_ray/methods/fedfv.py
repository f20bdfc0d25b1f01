"""FedFV: turn updates away from those they conflict with, the worst served clients last.

First each update is projected onto the normal plane of every update it conflicts with (internal
conflicts), then their mean is freed from conflicts with clients of recent rounds (external ones).

Wang et al., Federated Learning with Fair Averaging, IJCAI 2021. https://arxiv.org/abs/2104.14937
(Algorithms 1-3; order, losses and window as in the authors' current code)
"""

import math
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.numerics.geometry import weighted_sum

NO_DIRECTION = 1e-5
"""A mean this much shorter than the plain one is float32 rounding, not a direction to follow."""


class FedFV(Hyperparameters):
    """How many clients keep their update, and how many rounds are remembered."""

    name: Literal["fedfv"] = "fedfv"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the cohort, those with the largest losses, whose updates stay as they are."""
    tau: NonNegativeInt = 1
    """Rounds whose clients are remembered, for conflicts with those who are absent."""
    window: Literal["include_current", "past_only"] = "include_current"
    """The `tau` rounds up to this one (the authors' code today) or before it (first release)."""


class Memory(NamedTuple):
    """The last raw update of each client that took part in a round still in the window."""

    clients: Tensor  # [rows]
    rounds: Tensor  # [rows], when the update was made
    updates: Tensor  # [rows, dim]


class ServerState(NamedTuple):
    params: Tensor
    round_index: int
    memory: Memory


def build(hp: FedFV) -> Method[ServerState, OnlyParams, Nothing]:
    newest = 0 if hp.window == "include_current" else 1
    oldest = newest + hp.tau - 1  # ages of the rounds in the window

    def init_server(params: Tensor, num_clients: int) -> ServerState:
        nobody = torch.zeros(0, dtype=torch.int64, device=params.device)
        memory = Memory(nobody, nobody.clone(), params.new_zeros(0, len(params)))
        return ServerState(params, 0, memory)

    def aggregate(server: ServerState, cohort: Cohort, report: Report) -> tuple[ServerState, Info]:
        now, updates = server.round_index, report.update
        clients = torch.tensor(cohort, device=updates.device)
        # A client that takes part again outdates what it sent before.
        memory = select(server.memory, ~torch.isin(server.memory.clients, clients))
        mixing = mitigate_internal(report.gram, report.loss.squeeze(-1), hp.alpha)
        move = report.weighted_sum(mixing.mean(0))
        if now + 1 - newest >= hp.tau:  # the authors wait until the window is full
            for age in range(oldest, newest - 1, -1):
                sent = updates if age == 0 else memory.updates[memory.rounds == now - age]
                move = mitigate_external(move, sent)
        length, plain_length = move.norm(), report.plain_mean.norm()
        move = move * (plain_length / length if length > NO_DIRECTION * plain_length else 0)
        if oldest > 0:  # the next window reaches back to this round
            recent = select(memory, memory.rounds > now - oldest)
            memory = join(recent, Memory(clients, torch.full_like(clients, now), updates))
        info = {"remembered": float(len(memory.clients))}
        return ServerState(server.params + move, now + 1, memory), info

    return Method(
        init_server=init_server,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
        uses_loss=True,
    )


def mitigate_internal(gram: Tensor, loss: Tensor, alpha: float) -> Tensor:
    """The matrix that makes projected updates from raw ones, from the inner products of those."""
    order = loss.argsort(stable=True)
    first_kept = math.ceil((len(order) - 1) * (1 - alpha)) if alpha > 0 else len(order)
    may_turn = torch.ones_like(loss, dtype=torch.bool)
    may_turn[order[first_kept:]] = False
    mixing = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    for target in order:  # always the raw update; the largest loss has the last word
        products = mixing @ gram[:, target]
        conflicts = may_turn & (products < 0)
        conflicts[target] = False
        mixing[conflicts, target] -= products[conflicts] / gram[target, target]
    return mixing


def mitigate_external(move: Tensor, updates: Tensor) -> Tensor:
    """Free a move from the sum of those updates that it conflicts with."""
    conflicts = updates @ move < 0
    if not conflicts.any():
        return move
    opponent = weighted_sum(conflicts, updates)
    return move - (move @ opponent) / (opponent @ opponent) * opponent


def select(memory: Memory, rows: Tensor) -> Memory:
    return Memory(*(field[rows] for field in memory))


def join(first: Memory, second: Memory) -> Memory:
    return Memory(*(torch.cat(fields) for fields in zip(first, second, strict=True)))
