"""The plain answer to each question of the interface, for methods that do not change it."""

from typing import TypeVar

from torch import Tensor

from fedcome_ray.methods.method import (
    Affine,
    Cohort,
    HasParams,
    Info,
    Nothing,
    OnlyParams,
    Report,
    affine,
)

AnyT = TypeVar("AnyT")


def only_params(params: Tensor, num_clients: int) -> OnlyParams:
    """A server that keeps the params and nothing else."""
    return OnlyParams(params)


def stateless(like: Tensor) -> Nothing:
    """Clients that remember nothing."""
    return Nothing()


def send_params(server: HasParams) -> OnlyParams:
    """The cohort receives the params."""
    return OnlyParams(server.params)


@affine
def uncorrected(received: HasParams, client: object) -> Affine:
    """Clients follow their own gradient."""
    return Affine()


def keep(received: HasParams, client: AnyT, report: Report) -> AnyT:
    """Client state does not change by taking part."""
    return client


def average(server: OnlyParams, cohort: Cohort, report: Report) -> tuple[OnlyParams, Info]:
    """The params move by the cohort's mean update, weighted by examples."""
    return OnlyParams(server.params + report.weighted_mean), {}
