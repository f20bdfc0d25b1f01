"""q-FFL: minimise the sum of risks to the power q + 1, so that the worst served clients count more.

Solved by q-FedAvg, which estimates a step size for every q from the one that fits q = 0.

Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020.
https://arxiv.org/abs/1905.10497 (Algorithm 2)
"""

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report


class QFFL(Hyperparameters):
    """How much fairness; with 0 it is FedAvg with equal weights."""

    name: Literal["qffl"] = "qffl"
    q: NonNegativeFloat = 1.0
    """The larger, the more clients with high losses count."""
    lipschitz: PositiveFloat = 20.0  # L
    """Smoothness of the risks; the paper takes 1 / `local.lr` of the best FedAvg."""


def build(hp: QFFL) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        loss = report.loss + 1e-10  # as the authors do: a loss of 0 has no power q - 1
        slope = hp.lipschitz * torch.linalg.vector_norm(report.update, dim=-1, keepdim=True)
        # h_k, an upper bound of the curvature of F_k^(q+1) / (q + 1)
        curvature = hp.q * loss ** (hp.q - 1) * slope**2 + hp.lipschitz * loss**hp.q
        shares = (hp.lipschitz * loss**hp.q / curvature.sum()).squeeze(-1)
        move = report.weighted_sum(shares)
        info = {"largest_share": float(shares.max())}
        return OnlyParams(server.params + move), info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
        uses_loss=True,
    )
