"""Direct lines between processes, here between threads."""

import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fedcome_ray.errors import DivergenceError, FedcomeError
from fedcome_ray.methods.method import OnlyParams
from fedcome_ray.runtime import lines
from fedcome_ray.runtime.lines import (
    ForeignError,
    Line,
    LostLineError,
    Memories,
    Question,
    UpdateRows,
)
from fedcome_ray.runtime.objects import Message

pytestmark = pytest.mark.skipif(not lines.IS_POSSIBLE, reason="only Linux has such memory")

MESSAGE = Message(OnlyParams(torch.arange(5.0)))
PATIENCE = 20.0  # seconds


@contextmanager
def line_to(answer: Callable[..., Any]) -> Iterator[Line]:
    """The server's end of a line to a shard that answers like this."""
    with lines.open_exchange(2) as exchange:
        end = lines.dial(exchange.address, 3)
        assert end is not None
        (line,) = exchange.accept(1).values()
    shard = threading.Thread(target=end.serve, args=(answer,))
    shard.start()
    yield line
    line.hang_up()
    shard.join(PATIENCE)
    assert not shard.is_alive()


def ask(line: Line, *arguments: Any, target: UpdateRows | None = None) -> Any:
    line.ask(Question("what", arguments, target), MESSAGE, PATIENCE)
    return line.hear(PATIENCE)


def test_shards_are_known_by_their_numbers() -> None:
    with lines.open_exchange(2) as exchange:
        ends = [lines.dial(exchange.address, number) for number in (5, 2)]
        assert None not in ends
        assert sorted(exchange.accept(2)) == [2, 5]


def test_a_server_on_another_machine_has_no_line() -> None:
    assert lines.dial("\0fedcome_ray-of-another-machine", 0) is None


def test_processes_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    users = iter([os.geteuid() + 1, os.geteuid()])
    monkeypatch.setattr(lines, "_user", lambda end: next(users))
    with lines.open_exchange(2) as exchange:
        ends = [lines.dial(exchange.address, number) for number in (0, 1)]
        assert None not in ends
        assert list(exchange.accept(2)) == [1]


def test_the_user_at_the_other_end_is_told_by_the_system() -> None:
    with lines.open_exchange(2) as exchange:
        end = lines.dial(exchange.address, 0)
        assert end is not None
        peer, _ = exchange.socket.accept()
        with peer:
            assert lines._user(peer) == os.geteuid()


def test_a_question_brings_its_message_and_arguments() -> None:
    def answer(what: str, received: Any, arguments: Any, update: Any) -> Any:
        return what, received.params.tolist(), arguments, update

    with line_to(answer) as line:
        assert ask(line, (1, 2), "x") == ("what", [0, 1, 2, 3, 4], ((1, 2), "x"), None)


def test_updates_are_written_to_the_rows_of_the_server() -> None:
    def answer(what: str, received: Any, arguments: Any, update: torch.Tensor) -> Any:
        update.copy_(torch.from_numpy(received.params) + arguments[0])

    memories = Memories(most_rows=4, width=5)
    with line_to(answer) as line:
        for _ in range(3):
            memory, update = memories.take(4)
            update.zero_()
            ask(line, 10.0, target=UpdateRows(memory, slice(1, 3), 5))
            expected = torch.zeros(4, 5)
            expected[1:3] = torch.arange(5.0) + 10
            assert torch.equal(update, expected)


def test_memory_is_used_again_only_when_nobody_looks_at_it() -> None:
    memories = Memories(most_rows=3, width=2)
    first, matrix = memories.take(3)
    matrix.fill_(1.0)
    kept = matrix[1]  # as a method might keep an update
    del matrix
    second, other = memories.take(2)
    other.fill_(2.0)
    assert second.number != first.number
    assert kept.tolist() == [1.0, 1.0]
    del kept
    gc.collect()
    third, _ = memories.take(1)
    assert third.number == first.number


def test_memory_that_is_given_up_is_closed() -> None:
    memory, matrix = Memories(most_rows=1, width=1).take(1)
    path = Path(f"/proc/self/fd/{memory.file}")
    assert "fedcome_ray" in str(path.readlink())
    del memory, matrix
    gc.collect()
    assert not path.is_symlink() or "fedcome_ray" not in str(path.readlink())


def test_an_error_keeps_its_type_and_says_where_it_was_raised() -> None:
    def answer(*question: Any) -> Any:
        raise DivergenceError("too far")

    with line_to(answer) as line:
        with pytest.raises(ForeignError) as caught:
            ask(line)
        assert isinstance(caught.value.cause, DivergenceError)
        assert str(caught.value.cause) == "too far"
        assert "in answer" in caught.value.cause.__notes__[0]


def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    class StrangeError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def answer(*question: Any) -> Any:
        raise StrangeError(1, 2)

    with line_to(answer) as line:
        with pytest.raises(ForeignError) as caught:
            ask(line)
        assert type(caught.value.cause) is FedcomeError
        assert str(caught.value.cause) == "StrangeError: 1 and 2"


def test_a_large_message_goes_through_memory() -> None:
    """Else many shards would wait for each other's."""
    large = Message(OnlyParams(torch.arange(300_000.0)))
    assert large.memory is not None
    with line_to(lambda what, received, arguments, update: received.params.sum()) as line:
        for _ in range(2):
            line.ask(Question("what", ()), large, PATIENCE)
            assert line.hear(PATIENCE) == torch.arange(300_000.0).sum()


def test_a_message_that_cannot_be_read_is_told_of() -> None:
    broken = Message(OnlyParams(torch.arange(3.0)))
    broken.__dict__["packed"] = b"no pickle"
    with line_to(lambda *question: None) as line:
        line.ask(Question("what", ()), broken, PATIENCE)
        with pytest.raises(ForeignError) as caught:
            line.hear(PATIENCE)
        assert isinstance(caught.value.cause, pickle.UnpicklingError)
        assert ask(line) is None  # and it goes on


def test_more_shards_can_dial_than_a_queue_usually_has_places_for() -> None:
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    numbers = range(min(300, most))
    with lines.open_exchange(len(numbers)) as exchange:
        ends = [lines.dial(exchange.address, number) for number in numbers]
        assert None not in ends
        assert sorted(exchange.accept(len(numbers))) == [*numbers]


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next() -> None:
    with line_to(lambda what, received, arguments, update: arguments) as line:
        line.ask(Question("what", ("first",)), MESSAGE, PATIENCE)
        assert ask(line, "second") == ("second",)


def test_a_shard_that_cannot_go_on_hangs_up() -> None:
    with lines.open_exchange(2) as exchange:
        end = lines.dial(exchange.address, 0)
        assert end is not None
        line = exchange.accept(1)[0]
    line._connection.send_bytes(b"no pickle")
    with pytest.raises(pickle.UnpicklingError):
        end.serve(lambda *question: None)
    with pytest.raises(LostLineError):
        ask(line)


def test_an_end_that_is_gone_is_no_answer() -> None:
    with lines.open_exchange(2) as exchange:
        end = lines.dial(exchange.address, 0)
        assert end is not None
        line = exchange.accept(1)[0]
    end.hang_up()
    with pytest.raises(LostLineError):
        ask(line)


def test_nobody_waits_for_ever_for_an_answer_nor_for_a_reader() -> None:
    with lines.open_exchange(2) as exchange:
        end = lines.dial(exchange.address, 0)  # it never reads
        assert end is not None
        line = exchange.accept(1)[0]
    line.ask(Question("what", ()), MESSAGE, 1.0)
    with pytest.raises(TimeoutError):
        line.hear(1.0)
    many = tuple(range(1_000_000))
    with pytest.raises(TimeoutError):
        line.ask(Question("what", many), MESSAGE, 1.0)
