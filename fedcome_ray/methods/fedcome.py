"""FedCOME: move only where no client's risk rises.

Every update is replaced by the nearest one that conflicts with no update of the cohort
(`fedcome_ray.consensus`); their mean then decreases, to first order, the risk of every client.

Federated Learning via Consensus Mechanism on Heterogeneous Data (Algorithm 2; Algorithm 1 is the
case of one full-batch step, `local.epochs=1 local.batch_size=null`).
"""

from typing import Literal

from pydantic import PositiveFloat

from fedcome_ray.consensus import agreement as consensus
from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report


class FedCOME(Hyperparameters):
    """Consensus on updates; the sampler that the paper pairs it with is a setting of its own."""

    name: Literal["fedcome"] = "fedcome"
    server_lr: PositiveFloat = 1.0  # eta_g
    """Factor of the agreed direction."""
    weights: Literal["samples", "uniform"] = "samples"
    """Of clients in the mean: by samples, as the published numbers were made, or uniform, as in the
    paper's Algorithm 2."""
    clamp: PositiveFloat | None = None
    """Limit of each coordinate of the agreed direction; the authors' code has 0.005."""
    match_norm: bool = False
    """Rescale the agreed direction to the plain mean's length: a control for longer steps."""
    solver: consensus.Solver = "active_set"
    """Of the quadratic programs: our own, or OSQP to compare with."""


def build(hp: FedCOME) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        agreement = consensus.agree(
            report.update,
            report.weights if hp.weights == "samples" else None,
            gram=report.gram,
            solver=hp.solver,
            clamp=hp.clamp,
            match_norm=hp.match_norm,
        )
        return OnlyParams(server.params + hp.server_lr * agreement.direction), agreement.info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
