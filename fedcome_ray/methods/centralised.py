"""Centralised: one client with everybody's examples, as if they could be pooled.

A reference, not a federated method: what the model reaches without a federation. A round sees as
many examples as a cohort of the trial would see on average, in batches of the same size.
"""

from typing import Literal

from fedcome_ray.hyperparameters import Hyperparameters
from fedcome_ray.methods import parts
from fedcome_ray.methods.method import Method, Nothing, OnlyParams


class Centralised(Hyperparameters):
    """Nothing to set."""

    name: Literal["centralised"] = "centralised"


def build(hp: Centralised) -> Method[OnlyParams, OnlyParams, Nothing]:
    return Method(
        init_server=parts.only_params,
        init_client=parts.stateless,
        broadcast=parts.send_params,
        correct=parts.uncorrected,
        carry=parts.keep,
        aggregate=parts.average,
        pools=True,
        communicates=False,
    )
