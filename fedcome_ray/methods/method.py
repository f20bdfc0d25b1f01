"""The interface of a method: what it keeps, what it sends, and six pure functions.

Shapes. A server vector is `[dim]`, a client vector `[..., dim]`, a client scalar `[..., 1]`,
where `...` is nothing for one client and `clients` for a block of them. `correct`, `carry` and
`start` only broadcast: they never index or reduce the client axis, so one client and a block give
the same numbers. `aggregate` sees the whole cohort, `[cohort, dim]`, in increasing client order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from inspect import signature
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedcome_ray.numerics.geometry import gram_matrix, weighted_sum

Cohort = tuple[int, ...]
Info = Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """What clients send back after local training."""

    update: Tensor  # client vector: params after local training minus those before it
    loss: Tensor  # client scalar: mean training loss of the params received; NaN unless asked for
    total_lr: Tensor  # client scalar: learning rates of all local steps (K lr; momentum counts in)
    num_examples: Tensor  # client scalar

    @staticmethod
    def around(update: Tensor) -> "Report":
        """A report to be filled, in the memory given for its updates."""
        return Report(update, *(update.new_empty(len(update), 1) for _ in range(3)))

    def fields(self) -> tuple[Tensor, ...]:
        """What is sent, in the order of the constructor."""
        return self.update, self.loss, self.total_lr, self.num_examples

    def of(self, clients: slice) -> "Report":
        """That of some of its clients."""
        return Report(*(field[clients] for field in self.fields()))

    @property
    def mean_gradient(self) -> Tensor:
        """The gradient that, followed for the whole local path, gives the update."""
        return self.update / -self.total_lr

    @property
    def cohort_gradient(self) -> Tensor:
        """The mean of the cohort's mean gradients, `[dim]`."""
        longest = self.total_lr.max()  # by which rates may shrink without leaving single precision
        shares = (longest / self.total_lr).squeeze(-1) / len(self.update)
        return self.weighted_sum(shares) / -longest

    def add_mean_gradient(self, to: Tensor) -> Tensor:
        """A client vector plus the mean gradient, which is not formed."""
        return torch.addcdiv(to, self.update, self.total_lr, value=-1)

    @property
    def weights(self) -> Tensor:
        """Averaging weights of the cohort in proportion to its examples, `[cohort]`, sum 1."""
        return self.num_examples.squeeze(-1) / self.num_examples.sum()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """`weights @ update`, `[dim]`, of weights `[cohort]`, added up in float64."""
        return weighted_sum(weights, self.update)

    @cached_property
    def weighted_mean(self) -> Tensor:
        """The cohort's mean update, weighted by examples, `[dim]`, computed once."""
        return self.weighted_sum(self.weights)

    @property
    def plain_mean(self) -> Tensor:
        """The cohort's mean update, to which all clients contribute alike, `[dim]`."""
        num = len(self.update)
        return self.weighted_sum(torch.full((num,), 1 / num, dtype=torch.float64))

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


Correct = Callable[[Tensor, Tensor, ReceivedT, ClientT], Tensor]
"""(grad, params, received, client) -> the gradient to follow"""


class Affine(NamedTuple):
    """The gradient to follow as `share * grad + pull * params + offset`."""

    offset: Tensor | None = None  # client vector, or what is the same for all of them
    pull: float = 0.0
    share: float = 1.0

    def __call__(self, grad: Tensor, params: Tensor) -> Tensor:
        direction = grad if self.share == 1.0 else self.share * grad
        if self.pull:
            direction = torch.add(direction, params, alpha=self.pull)
        return direction if self.offset is None else direction + self.offset

    def of(self, clients: slice) -> "Affine":
        """That of some clients of a block."""
        if self.offset is None or self.offset.dim() == 1 or len(self.offset) == 1:
            return self
        return self._replace(offset=self.offset[clients])


def affine(terms: Callable[[ReceivedT, ClientT], Affine]) -> Correct[ReceivedT, ClientT]:
    """The `correct` of a method that knows before local training what it will add in every step.

    A step is then a product and a sum, with no gradient written to memory in between.
    """

    def correct(grad: Tensor, params: Tensor, received: ReceivedT, client: ClientT) -> Tensor:
        return terms(received, client)(grad, params)

    facts = {"terms": terms, "__signature__": signature(correct)}
    update_wrapper(correct, terms).__dict__.update(facts)
    return correct


@dataclass(frozen=True)
class Method(Generic[ServerT, ReceivedT, ClientT]):
    """A federated method. The three states are named tuples, private to the method's file."""

    init_server: Callable[[Tensor, int], ServerT]
    """(params, num_clients) -> what the server keeps"""
    init_client: Callable[[Tensor], ClientT]
    """(like) -> what a client keeps before it first takes part; only shape, dtype, device count"""
    broadcast: Callable[[ServerT], ReceivedT]
    """what the cohort receives: state kept is not state sent"""
    correct: Correct[ReceivedT, ClientT]
    """(grad, params, received, client) -> the gradient to follow; `affine` makes one"""
    carry: Callable[[ReceivedT, ClientT, Report], ClientT]
    """client state for its next participation"""
    aggregate: Callable[[ServerT, Cohort, Report], tuple[ServerT, Info]]
    """the server's next state, and what a human may want to know"""
    uses_loss: bool = False
    """whether `aggregate` reads `Report.loss`, which costs clients a pass over their examples"""
    start: Callable[[Tensor, ClientT], Tensor] | None = None
    """(params received, client) -> params of its own, from which it trains and with which it is
    tested; without, they are those received"""
    pools: bool = False
    """whether there is a single client, which has everybody's training examples"""
    communicates: bool = True
    """whether what is broadcast and reported would be sent; references stay where they are"""

    @property
    def terms(self) -> Callable[[ReceivedT, ClientT], Affine] | None:
        """What `correct` will do in every step, if it is `affine`."""
        return getattr(self.correct, "terms", None)


AnyMethod = Method[Any, Any, Any]


class OnlyParams(NamedTuple):
    """The state of a server, or the message of one, that consists of the params alone."""

    params: Tensor


class Nothing(NamedTuple):
    """The state of clients that remember nothing."""
