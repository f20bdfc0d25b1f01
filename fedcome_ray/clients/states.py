"""What clients remember between their participations.

Rows exist only for clients that have taken part. A round's new states are proposed first and
become valid when the next round begins: if a round has to be repeated, because another shard died
in it, its proposals are dropped and the repetition sees what the first attempt saw.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.numerics.arrays import Arrays


class ClientStates:
    """States of any number of clients as one buffer `[rows, dim]` for each field of the state."""

    def __init__(self, init_client: Callable[[Tensor], Any], dim: int) -> None:
        self._fresh = init_client(torch.zeros(dim))
        self._rows: dict[int, int] = {}
        self._fields = [field.new_empty((0, dim)) for field in self._fresh]
        self._proposed: list[tuple[Tensor, Any]] = []
        self._round = -1

    def begin(self, round_index: int) -> None:
        """Accept the proposals of an earlier round; drop those of an abandoned attempt at this."""
        if self._round < round_index:
            self.accept()
        self._proposed = []
        self._round = round_index

    def of(self, clients: Tensor) -> Any:
        """The states of a block of clients, `[clients, dim]` for each field: not to be kept."""
        known = [self._rows[client] for client in clients.tolist() if client in self._rows]
        if len(known) == len(clients):
            return type(self._fresh)(*(rows_of(field, known) for field in self._fields))
        blocks = [fresh.repeat(len(clients), 1) for fresh in self._fresh]
        if known:
            places = [at for at, client in enumerate(clients.tolist()) if client in self._rows]
            for block, field in zip(blocks, self._fields, strict=True):
                block[places] = field[known]
        return type(self._fresh)(*blocks)

    def propose(self, clients: Tensor, state: Any) -> None:
        """Remember these states, valid from the next round on."""
        if self._fields:
            self._proposed.append((clients, state))

    def export(self) -> Arrays:
        """Clients that have a state, in increasing order, and a row for each, by field.

        For a checkpoint between two rounds, so what the last round proposed is valid.
        """
        self.accept()
        clients = sorted(self._rows)
        rows = [self._rows[client] for client in clients]
        names = self._fresh._fields
        fields = {name: f[rows].numpy() for name, f in zip(names, self._fields, strict=True)}
        return {"ids": np.array(clients, np.int64), **fields}

    def restore(self, states: Arrays) -> None:
        """Remember what `export` gave and nothing else."""
        self._rows, self._proposed, self._round = {}, [], -1
        if states:
            fields = [torch.tensor(states[name]) for name in self._fresh._fields]
            self._write(torch.tensor(states["ids"]), fields)

    def accept(self) -> None:
        """Make what the last round proposed valid: all of its clients have reported."""
        proposed, self._proposed = self._proposed, []
        for clients, state in proposed:
            self._write(clients, state)

    def _write(self, clients: Tensor, state: Any) -> None:
        newcomers = [client for client in clients.tolist() if client not in self._rows]
        for client in newcomers:
            self._rows[client] = len(self._rows)
        rows = torch.tensor([self._rows[client] for client in clients.tolist()], dtype=torch.int64)
        if torch.equal(rows, torch.arange(len(self._rows))):  # everybody, so nothing is left of old
            self._fields = list(state)
            return
        for number, values in enumerate(state):
            field = self._fields[number]
            if len(field) < len(self._rows):
                grown = field.new_empty((max(len(self._rows), 2 * len(field)), field.shape[1]))
                grown[: len(field)] = field
                self._fields[number] = field = grown
            field.index_copy_(0, rows, values)


def rows_of(field: Tensor, rows: list[int]) -> Tensor:
    """These rows, where they are if they stand side by side."""
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return field[rows[0] : rows[0] + len(rows)]
    return field[rows]
