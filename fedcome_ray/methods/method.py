"""The interface of a method: what it keeps, what it sends, and six pure functions.

Shapes. A server vector is `[dim]`, a client vector `[..., dim]`, a client scalar `[..., 1]`,
where `...` is nothing for one client and `clients` for a block of them. `correct` and `carry`
only broadcast: they never index or reduce the client axis, so one client and a block give the
same numbers. `aggregate` sees the whole cohort, `[cohort, dim]`, in increasing client order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedcome_ray.numerics.arrays import aligned
from fedcome_ray.numerics.geometry import gram_matrix

Cohort = tuple[int, ...]
Info = Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """What clients send back after local training."""

    update: Tensor  # client vector: params after local training minus params received
    loss: Tensor  # client scalar: mean training loss of the params received; NaN unless asked for
    total_lr: Tensor  # client scalar: sum of the learning rates of the local steps (K * lr)
    num_examples: Tensor  # client scalar

    @staticmethod
    def concatenate(reports: "Sequence[Report]") -> "Report":
        """One report for the clients of several, in the order given."""
        if len(reports) == 1:
            return Report(*map(aligned, reports[0].fields()))
        return Report(*map(torch.cat, zip(*(r.fields() for r in reports), strict=True)))

    def fields(self) -> tuple[Tensor, ...]:
        """What is sent, in the order of the constructor."""
        return self.update, self.loss, self.total_lr, self.num_examples

    @property
    def mean_gradient(self) -> Tensor:
        """The gradient that, followed for the whole local path, gives the update."""
        return self.update / -self.total_lr

    @property
    def weights(self) -> Tensor:
        """Averaging weights of the cohort in proportion to its examples, `[cohort]`, sum 1."""
        return self.num_examples.squeeze(-1) / self.num_examples.sum()

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the cohort's updates, `[cohort, cohort]` in float64, computed once."""
        return gram_matrix(self.update)


class HasParams(Protocol):
    """Every method sends at least the params from which local training starts."""

    @property
    def params(self) -> Tensor: ...


ServerT = TypeVar("ServerT", bound=HasParams)
ReceivedT = TypeVar("ReceivedT", bound=HasParams)
ClientT = TypeVar("ClientT")


@dataclass(frozen=True)
class Method(Generic[ServerT, ReceivedT, ClientT]):
    """A federated method. The three states are named tuples, private to the method's file."""

    init_server: Callable[[Tensor, int], ServerT]
    """(params, num_clients) -> what the server keeps"""
    init_client: Callable[[Tensor], ClientT]
    """(like) -> what a client keeps before it first takes part; only shape, dtype, device count"""
    broadcast: Callable[[ServerT], ReceivedT]
    """what the cohort receives: state kept is not state sent"""
    correct: Callable[[Tensor, Tensor, ReceivedT, ClientT], Tensor]
    """(grad, params, received, client) -> the gradient to follow"""
    carry: Callable[[ReceivedT, ClientT, Report], ClientT]
    """client state for its next participation"""
    aggregate: Callable[[ServerT, Cohort, Report], tuple[ServerT, Info]]
    """the server's next state, and what a human may want to know"""
    uses_loss: bool = False
    """whether `aggregate` reads `Report.loss`, which costs clients a pass over their examples"""


AnyMethod = Method[Any, Any, Any]


class OnlyParams(NamedTuple):
    """The state of a server, or the message of one, that consists of the params alone."""

    params: Tensor


class Nothing(NamedTuple):
    """The state of clients that remember nothing."""
