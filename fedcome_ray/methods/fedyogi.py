"""FedYogi: FedAdam whose variance grows at a rate that does not depend on its own size.

Reddi et al., Adaptive Federated Optimization, ICLR 2021. https://arxiv.org/abs/2003.00295
(Algorithm 2)
"""

from typing import Literal

from torch import Tensor

from fedcome_ray.methods.fedadam import Adaptive, ServerState, adaptive
from fedcome_ray.methods.method import Method, Nothing, OnlyParams


class FedYogi(Adaptive):
    """Yogi at the server."""

    name: Literal["fedyogi"] = "fedyogi"


def build(hp: FedYogi) -> Method[ServerState, OnlyParams, Nothing]:
    def approach(variance: Tensor, square: Tensor) -> Tensor:
        return variance - (1 - hp.beta2) * square * (variance - square).sign()

    return adaptive(hp, approach)
