"""DualProj: the mean update, projected once onto the cone of updates that conflict with nobody.

FedCOME projects every update and takes the mean afterwards. What differs between the two tells
whether projecting every client matters.

Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NeurIPS 2017.
https://arxiv.org/abs/1706.08840 (equation 11); so called by https://arxiv.org/abs/2406.16232
"""

from typing import Literal

from fedcome_ray.consensus import agreement as consensus
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Cohort, Info, Method, Nothing, OnlyParams, Report
from fedcome_ray.methods.weighting import Weighted


class DualProj(Weighted):
    """Consensus on the mean alone."""

    name: Literal["dualproj"] = "dualproj"


def build(hp: DualProj) -> Method[OnlyParams, OnlyParams, Nothing]:
    def aggregate(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
        agreement = consensus.agree(
            report.update,
            report.weights,
            gram=report.gram,
            projected="mean",
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
