"""Direct lines between a server and the shards on its own machine.

Words go through a socket, and updates are written to memory that both processes see. A call of Ray
costs one or two milliseconds of a round and its object store a copy of all updates, and both take
processor time from local training. Shards on other machines are called through Ray, and so are all
shards where the system has no such memory: only Linux has it.
"""

import math
import mmap
import os
import socket
import struct
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcome_ray.errors import FedcomeError
from fedcome_ray.runtime.objects import Memory, Message, pack, unpack

IS_POSSIBLE = hasattr(os, "memfd_create")
DIAL_SECONDS = 10.0
"""For the first words of a shard that has said that it is on this machine."""
FLOAT_BYTES = 4
Answer = Callable[[str, Any, tuple[Any, ...], Tensor | None], Any]
"""(what is asked, the message, arguments, rows to write updates to) -> what is answered"""


class LostLineError(Exception):
    """The other end is gone."""


class ForeignError(Exception):
    """An error of the other end."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class Memories:
    """Memory for the updates of one round after the other.

    It is used again when no tensor is in it any more: a method may keep those of a round.
    """

    def __init__(self, most_rows: int, width: int) -> None:
        self.most_rows, self._width = most_rows, width
        self._num_bytes = most_rows * width * FLOAT_BYTES  # none are there until they are used
        self._free: list[Memory] = []

    def take(self, num_rows: int) -> tuple[Memory, Tensor]:
        """Memory, and a matrix with so many rows in it, of any content."""
        memory = self._free.pop() if self._free else Memory(self._num_bytes)
        numbers = np.frombuffer(memory.bytes, np.float32, num_rows * self._width)
        # PyTorch keeps these numbers as long as there is a tensor in them.
        weakref.finalize(numbers, self._free.append, memory).atexit = False
        return memory, torch.from_numpy(numbers).view(num_rows, self._width)


class UpdateRows(NamedTuple):
    """Rows of a matrix in memory, to which a shard writes its updates."""

    memory: Memory
    rows: slice
    width: int


class Question(NamedTuple):
    """What a shard is asked; a target only for updates, and if it has a line."""

    what: str
    arguments: tuple[Any, ...]
    target: UpdateRows | None = None


class WireQuestion(NamedTuple):
    """A question as it goes through the socket."""

    number: int
    what: str
    arguments: tuple[Any, ...]
    where: tuple[int, slice, int] | None  # number of the memory, rows and width of its matrix
    sizes: dict[int, int]  # of memory that is lent with it, by its number
    written_to: int | None  # number of the memory that has the message, if any has


@contextmanager
def open_exchange(num_shards: int) -> "Iterator[Exchange]":
    """Where so many shards on this machine may dial their server."""
    address = f"\0fedcome_ray-{uuid.uuid4().hex}"  # not a file: nothing is left behind
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(address)
        end.listen(num_shards)
        end.settimeout(DIAL_SECONDS)
        yield Exchange(address, end)


class Exchange(NamedTuple):
    """The server's side of it, which takes only processes of the same user."""

    address: str
    socket: socket.socket

    def accept(self, num_dialled: int) -> "dict[int, Line]":
        """The lines of so many shards that have dialled, by their numbers, but for strangers'."""
        lines: dict[int, Line] = {}
        for _ in range(num_dialled):
            end, _ = self.socket.accept()
            end.setblocking(True)
            if _user(end) != os.geteuid():
                end.close()
                continue
            line = Line(end)
            lines[line.hear(DIAL_SECONDS)] = line
        return lines


def dial(address: str, number: int) -> "Line | None":
    """A shard's line to its server; None if that is on another machine, or does not answer."""
    end = socket.socket(socket.AF_UNIX)
    try:
        end.settimeout(DIAL_SECONDS)
        end.connect(address)
        end.setblocking(True)
    except OSError:
        end.close()
        return None
    line = Line(end)
    line.answer(0, number)  # to what was not asked yet
    return line


class Line:
    """An end of a line: the server asks and hears, the shard serves."""

    def __init__(self, end: socket.socket) -> None:
        self._connection = Connection(end.detach())
        self._limit = 0  # seconds
        self._asked = 0  # questions
        self._lent: dict[int, mmap.mmap] = {}  # memory that both ends have, by its number

    def ask(self, question: Question, message: Message, seconds: float) -> None:
        what, arguments, target = question
        new, where = [], None
        if target is not None:
            where = target.memory.number, target.rows, target.width
            if target.memory.number not in self._lent:
                new.append(target.memory)
                self._lent[target.memory.number] = target.memory.bytes
        if message.memory is not None:
            new.append(message.memory)
        sizes = {memory.number: len(memory.bytes) for memory in new}
        written_to = None if message.memory is None else message.memory.number
        self._asked += 1
        with self._within(seconds):
            self._say(tuple(WireQuestion(self._asked, what, arguments, where, sizes, written_to)))
            for memory in new:
                reduction.send_handle(self._connection, memory.file, os.getpid())
            self._connection.send_bytes(b"" if message.memory else message.packed)

    def hear(self, seconds: float) -> Any:
        """The answer to the last question; `TimeoutError` if it does not come for so long."""
        with self._within(seconds):
            number, answer = self._next()
            while number < self._asked:  # of a question that nobody waited for
                number, answer = self._next()
        if isinstance(answer, ForeignError):
            raise answer
        return answer

    def serve(self, answer: Answer) -> None:
        """Answer questions until the server is gone."""
        try:
            with suppress(EOFError, ConnectionError):
                while True:
                    asked = WireQuestion(*self._next())
                    files = [reduction.recv_handle(self._connection) for _ in asked.sizes]
                    packed = self._connection.recv_bytes()
                    said = _attempt(self._answered, answer, asked, files, packed)
                    self.answer(asked.number, said)
        finally:
            self._lent.clear()
            self.hang_up()  # else the server would wait for somebody who does not listen

    def answer(self, number: int, words: Any) -> None:
        """To the question with this number."""
        self._say((number, words))

    def hang_up(self) -> None:
        """Let whoever serves the line stop, also in another thread."""
        with self._socket() as end, suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def _answered(
        self, answer: Answer, asked: WireQuestion, files: list[int], packed: bytes
    ) -> Any:
        for (number, num_bytes), file in zip(asked.sizes.items(), files, strict=True):
            try:
                self._lent[number] = mmap.mmap(file, num_bytes)
            finally:
                os.close(file)
        written_to = asked.written_to
        message = unpack(packed if written_to is None else self._lent.pop(written_to))
        update = None if asked.where is None else self._rows(*asked.where)
        return answer(asked.what, message, asked.arguments, update)

    def _rows(self, number: int, rows: slice, width: int) -> Tensor:
        numbers = np.frombuffer(self._lent[number], np.float32)
        return torch.from_numpy(numbers[rows.start * width : rows.stop * width]).view(-1, width)

    def _say(self, words: Any) -> None:
        self._connection.send_bytes(pack(words))

    def _next(self) -> Any:
        return unpack(self._connection.recv_bytes())

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Do not wait longer than this for the other end to read or to write."""
        try:
            self._set_limit(max(1, math.ceil(seconds)))
            yield
        except BlockingIOError as error:
            raise TimeoutError from error
        except (EOFError, ConnectionError) as error:
            raise LostLineError(str(error) or "its line is dead") from error
        except OSError as error:
            if error.errno is None:  # half a message, says `multiprocessing`
                raise LostLineError(str(error)) from error
            raise

    def _set_limit(self, seconds: int) -> None:
        if seconds != self._limit:
            with self._socket() as end:
                for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                    end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
            self._limit = seconds

    def _socket(self) -> socket.socket:
        return socket.fromfd(self._connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


def _attempt(answer: Callable[..., Any], *given: Any) -> Any:
    """The answer, or the error of whoever gives it, as it can be sent."""
    try:
        return answer(*given)
    except Exception as error:  # noqa: BLE001 - raised at the other end
        error.add_note(f"in a shard:\n{traceback.format_exc()}")
        try:
            unpack(pack(error))
        except Exception:  # noqa: BLE001 - not every error can be sent
            return ForeignError(FedcomeError(f"{type(error).__name__}: {error}"))
        return ForeignError(error)


def _user(end: socket.socket) -> int:
    """Whose process is at the other end."""
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return int(user)
