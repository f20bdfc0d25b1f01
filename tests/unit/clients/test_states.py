"""What clients remember: valid when a round is complete, and no sooner."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedcome_ray.clients.states import ClientStates

DIM = 2


class Memory(NamedTuple):
    control: Tensor
    drift: Tensor


class Forgetful(NamedTuple):
    pass


def states() -> ClientStates:
    return ClientStates(lambda params: Memory(params + 1, params), DIM)


def ids(*clients: int) -> Tensor:
    return torch.tensor(clients, dtype=torch.int64)


def memory(*values: float) -> Memory:
    column = torch.tensor(values, dtype=torch.float32).unsqueeze(-1)
    return Memory(column.expand(-1, DIM), -column.expand(-1, DIM))


def controls(states: ClientStates, *clients: int) -> list[float]:
    return states.of(ids(*clients)).control[:, 0].tolist()


def test_newcomers_have_a_fresh_state() -> None:
    assert controls(states(), 3, 1) == [1, 1]


def test_what_a_round_proposes_is_valid_in_the_next() -> None:
    kept = states()
    kept.begin(0)
    kept.propose(ids(5, 2), memory(50, 20))
    assert controls(kept, 2, 5) == [1, 1]
    kept.begin(1)
    assert controls(kept, 2, 3, 5) == [20, 1, 50]


def test_a_repeated_round_sees_what_the_first_attempt_saw() -> None:
    kept = states()
    kept.begin(0)
    kept.propose(ids(2), memory(20))
    kept.begin(0)
    assert controls(kept, 2) == [1]


def test_many_newcomers_do_not_disturb_the_old() -> None:
    kept = states()
    for client in range(100):
        kept.begin(client)
        kept.propose(ids(client), memory(client))
    kept.begin(100)
    assert controls(kept, *range(100)) == list(range(100))


def test_an_export_is_in_increasing_order_and_can_be_restored() -> None:
    kept = states()
    kept.begin(0)
    kept.propose(ids(9, 4), memory(90, 40))
    exported = kept.export()
    assert exported["ids"].tolist() == [4, 9]
    assert exported["drift"][:, 0].tolist() == [-40, -90]
    other = states()
    other.restore(exported)
    assert controls(other, 4, 9, 0) == [40, 90, 1]


def test_a_restore_forgets_everything_else() -> None:
    kept = states()
    kept.begin(0)
    kept.propose(ids(1), memory(10))
    kept.restore({})
    kept.begin(1)
    assert controls(kept, 1) == [1]


@pytest.mark.parametrize("init", [lambda params: Memory(params, params), lambda _: Forgetful()])
def test_nothing_to_remember_can_be_saved_too(init: object) -> None:
    kept = ClientStates(init, DIM)  # type: ignore[arg-type]
    exported = kept.export()
    assert exported["ids"].tolist() == []
    kept.restore(exported)
    assert kept.export().keys() == exported.keys()
