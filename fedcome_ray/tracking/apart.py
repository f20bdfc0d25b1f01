"""MLflow in a process of its own: importing it and writing to it takes no time from trials.

    here ── what is asked, pickled ──> there
         <── the answer, or why not ──

The other process ends when this one closes the connection, or ends. It is no member of this one's
process group: Ctrl-C is for the launch, which has something to write then.
"""

import os
import subprocess
import sys
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

from fedcome_ray.errors import FedcomeError
from fedcome_ray.tracking.client import Client, root_cause
from fedcome_ray.tracking.sqlite_client import client_of

_CODE = "import sys; from fedcome_ray.tracking.apart import serve; serve(int(sys.argv[1]))"


def client_apart(uri: str) -> Client:
    """A client whose every method is answered by another process."""
    return cast(Client, _Asker(uri))


class _Asker:
    """Stands in for a client; a process that died is replaced when something is asked next."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._start()

    def __getattr__(self, method: str) -> Any:
        return partial(self._ask, method)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        theirs.close()
        self._connection.send(self._uri)  # not as an argument: it may have a password

    def _ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._process.poll() is not None:
            self._start()
        try:
            self._connection.send((method, args, kwargs))
            answer, trouble = self._connection.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise FedcomeError(f"its process ended, with exit code {code}") from None
        if trouble is not None:
            raise FedcomeError(trouble)
        return answer


def serve(descriptor: int) -> None:
    """Answer until nobody asks any more."""
    with Connection(descriptor) as connection:
        client = client_of(connection.recv())
        while True:
            try:
                method, args, kwargs = connection.recv()
            except (EOFError, OSError):
                return
            connection.send(_answer(client, method, args, kwargs))


def _answer(client: Client, method: str, args: Any, kwargs: Any) -> tuple[Any, str | None]:
    try:
        return getattr(client, method)(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - raised where it was asked
        return None, root_cause(error)
