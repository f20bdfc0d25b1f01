"""FedGH: gradient harmonisation, both updates of a conflicting pair projected off each other.

Pairs are visited in the order of the clients. As each update meets the others as they were sent,
it is PCGrad in a fixed order.

Zhang et al., Tackling the Non-IID Issue in Heterogeneous Federated Learning by Gradient
Harmonization, IEEE Signal Processing Letters 2024. https://arxiv.org/abs/2309.06692
"""

from typing import Literal

import numpy as np

from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.methods.pcgrad import project
from fedcome_ray.methods.weighting import Weighted, weighted_move


class FedGH(Weighted):
    """Projections in the order of the clients."""

    name: Literal["fedgh"] = "fedgh"


def build(hp: FedGH) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        orders = np.tile(np.argsort(cohort), (len(cohort), 1))
        move, info = weighted_move(hp, report, lambda gram, shares: shares @ project(gram, orders))
        return OnlyParams(server.params + move), info

    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=aggregate,
    )
