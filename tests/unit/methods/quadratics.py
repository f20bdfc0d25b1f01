"""Clients whose risk is a parabola: everything about them is known in closed form."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedcome_ray.methods.method import AnyMethod, Cohort, Report


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


def report_of(
    update: Tensor, *, loss: Tensor | None = None, num_examples: Tensor | None = None
) -> Report:
    """A report of clients that made one step of length 1 on one example each."""
    ones = torch.ones_like(update[..., :1])
    return Report(
        update=update,
        loss=ones * float("nan") if loss is None else loss,
        total_lr=ones,
        num_examples=ones if num_examples is None else num_examples,
    )


class Quadratics:
    """A federation of clients with risks F_i(y) = sum_j a_ij (y_j - b_ij)^2 / 2."""

    def __init__(
        self,
        method: AnyMethod,
        curvature: Tensor,  # a, [clients, dim]
        minimum: Tensor,  # b, [clients, dim]
        start: Tensor,  # [dim]
        *,
        lr: float = 0.1,
        num_steps: Sequence[int] | int = 2,
        num_examples: Tensor | None = None,
    ) -> None:
        self.method, self.lr = method, lr
        self.curvature, self.minimum = curvature, minimum
        num_clients = len(curvature)
        self.num_steps = torch.ones(num_clients, 1, dtype=torch.int64)
        self.num_steps *= torch.as_tensor(num_steps).reshape(-1, 1)
        ones = torch.ones_like(curvature[:, :1])
        self.num_examples = ones if num_examples is None else num_examples
        self.server: Any = method.init_server(start, num_clients)
        self.clients = [method.init_client(torch.zeros_like(start)) for _ in range(num_clients)]

    @property
    def optimum(self) -> Tensor:
        """Where the mean of all risks is least."""
        return (self.curvature * self.minimum).sum(0) / self.curvature.sum(0)

    def risk(self, params: Tensor) -> Tensor:
        return (self.curvature * (params - self.minimum) ** 2).sum(-1, keepdim=True) / 2

    def gradient(self, params: Tensor) -> Tensor:
        return self.curvature * (params - self.minimum)

    def states(self, field: str) -> Tensor:
        return torch.stack([getattr(client, field) for client in self.clients])

    def train(self, client: int) -> Report:
        """Local training of one client, which then carries its state on."""
        received = self.method.broadcast(self.server)
        state, params = self.clients[client], received.params
        for _ in range(int(self.num_steps[client])):
            grad = self.gradient(params)[client]
            params = params - self.lr * self.method.correct(grad, params, received, state)
        report = Report(
            update=params - received.params,
            loss=self.risk(received.params)[client],
            total_lr=self.lr * self.num_steps[client].to(params.dtype),
            num_examples=self.num_examples[client],
        )
        self.clients[client] = self.method.carry(received, state, report)
        return report

    def round(self, cohort: Cohort | None = None) -> Report:
        """One round of this cohort, or of everybody; the joint report of its clients."""
        cohort = cohort or tuple(range(len(self.clients)))
        reports = [self.train(client) for client in cohort]
        fields = ("update", "loss", "total_lr", "num_examples")
        joint = Report(*(torch.stack([getattr(r, field) for r in reports]) for field in fields))
        self.server, _ = self.method.aggregate(self.server, cohort, joint)
        return joint
