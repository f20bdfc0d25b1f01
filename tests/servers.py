"""Servers of one's own on the loopback interface: MLflow, and PostgreSQL where it is installed."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.end_to_end.commands import environment

PATIENCE = 600.0  # seconds, for a server to start on a busy machine
ADMIN, PASSWORD = "admin", "correct-horse-battery"


class MissingError(Exception):
    """This machine has no such server."""


class MlflowServer:
    """It can be killed and started again; `store` is the URI of its database."""

    def __init__(
        self, folder: Path, store: str, *, is_guarded: bool = False, num_workers: int = 1
    ) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.artifacts = folder / "artifacts"
        self._folder = folder
        self._store = store
        self._is_guarded = is_guarded
        self._num_workers = num_workers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", self._store]
        command += ["--artifacts-destination", str(self.artifacts)]
        command += ["--port", str(self.port), "--workers", str(self._num_workers)]
        variables = environment() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        if self._is_guarded:
            command += ["--app-name", "basic-auth"]
            variables |= self._guard()
        log = self._folder / "server.log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env=variables, process_group=0
            )
        wait_until(self._is_healthy, lambda: log.read_text())

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _guard(self) -> dict[str, str]:
        """Let nobody in but the administrator."""
        config = self._folder / "auth.ini"
        config.write_text(
            "[mlflow]\ndefault_permission = READ\n"
            f"database_uri = sqlite:///{self._folder / 'users.db'}\n"
            f"admin_username = {ADMIN}\nadmin_password = {PASSWORD}\n"
            "auth_cache_ttl_seconds = 60\n"  # else each request costs 0.1 s of CPU time
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        )
        return {
            "MLFLOW_AUTH_CONFIG_PATH": str(config),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "of this test",
        }

    def _is_healthy(self) -> bool:
        with suppress(OSError):
            urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
            return True
        return False


@contextmanager
def postgresql() -> Iterator[str]:
    """The URI of a fresh database of a PostgreSQL of one's own; or raise MissingError."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders or os.getuid() != 0:
        raise MissingError("PostgreSQL (Debian: postgresql), or root, who can be its own user")
    user = pwd.getpwnam("postgres")  # it refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    data, port = folder / "data", free_port()

    def run(program: str, *arguments: str) -> None:
        command = ["runuser", "-u", "postgres", "--", str(folders[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE, cwd=folder)

    try:
        run("initdb", "--pgdata", str(data), "--auth", "trust", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        control = ["--pgdata", str(data), "--log", str(folder / "log"), "--wait"]
        run("pg_ctl", "start", *control, "--options", options)
        try:
            run("createdb", "--host", "127.0.0.1", "--port", str(port), "mlflow")
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/mlflow"
        finally:
            run("pg_ctl", "stop", *control, "--mode", "immediate")
    finally:
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_there: Callable[[], bool], explain: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_there():
        if time.monotonic() > end:
            raise TimeoutError(explain())
        time.sleep(0.2)
