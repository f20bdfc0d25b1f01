"""A real S3 server on the loopback interface, which can be away for a while."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SECRET = "a-secret-that-must-not-be-seen"


class Server:
    """Moto's, behind a relay that can hang up: what the server holds is in its memory."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = _port_in(log)
        self._relay = _Relay(self._port)
        self.address = f"http://127.0.0.1:{self._relay.port}"

    @contextmanager
    def away(self) -> Iterator[None]:
        self._relay.hang_up()
        try:
            yield
        finally:
            self._relay.listen()

    def requests(self) -> list[str]:
        """All so far, as `PUT /bucket/name`."""
        return re.findall(r'"([A-Z]+ /[^? ]*)', self._log.read_text())

    def close(self) -> None:
        self._relay.hang_up()


class _Relay:
    """Passes connections on to a port."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[socket.socket] = set()
        self.port = 0
        self.listen()

    def listen(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def hang_up(self) -> None:
        for one in (self._listener, *self._open.copy()):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open |= {caller, server}
            threading.Thread(target=self._relay, args=(caller, server), daemon=True).start()

    def _relay(self, caller: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=_pass_on, args=(server, caller), daemon=True)
        answers.start()
        _pass_on(caller, server)
        answers.join()
        for one in (caller, server):  # or there would soon be too many
            one.close()
            self._open.discard(one)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _port_in(log: Path) -> int:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


@contextmanager
def serving(folder: Path, bucket: str) -> Iterator[Server]:
    """A server with a bucket, and the variables by which this process and its children find it."""
    log = folder / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    variables = pytest.MonkeyPatch()
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        server = Server(log)
        for name in os.environ:
            if name.startswith("AWS_"):
                variables.delenv(name)
        variables.setenv("AWS_ENDPOINT_URL", server.address)
        variables.setenv("AWS_ACCESS_KEY_ID", "tester")
        variables.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        variables.setenv("AWS_DEFAULT_REGION", "us-east-1")
        variables.setenv("AWS_EC2_METADATA_DISABLED", "true")
        variables.setenv("AWS_CONFIG_FILE", str(folder / "none"))
        variables.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
        from s3fs import S3FileSystem

        S3FileSystem(skip_instance_cache=True).mkdir(bucket)
        yield server
        server.close()
    finally:
        variables.undo()
        process.kill()
        process.wait()
