"""FedProx: a spring holds every client near the params it received.

Clients minimise F_i(y) + mu/2 |y - x|^2.

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
https://arxiv.org/abs/1812.06127
"""

from typing import Literal

from pydantic import NonNegativeFloat

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Affine, Method, Nothing, OnlyParams, affine


class FedProx(Hyperparameters):
    """Stiffness of the spring; with 0 it is FedAvg."""

    name: Literal["fedprox"] = "fedprox"
    mu: NonNegativeFloat = 0.001
    """Strength of the pull back to the received params."""


def build(hp: FedProx) -> Method[OnlyParams, OnlyParams, Nothing]:
    @affine
    def correct(received: OnlyParams, client: Nothing) -> Affine:
        # mu (y - x): the norm is squared (eq. 2); published re-implementations that forget it pull
        # with a constant force mu/2, however small the drift.
        return Affine(pull=hp.mu, offset=-hp.mu * received.params)

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=correct,
        carry=parts.keep,
        aggregate=parts.average,
    )
