"""The address of a store, checked before anything long starts.

    http(s)://HOST:PORT   an MLflow server, which may ask for a name and a password
    sqlite:///FILE        a file, made if need be
    postgresql://...      a database, or another that MLflow knows

Names and passwords of servers are what MLflow takes them for: those in the address, or
MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, or the file
~/.mlflow/credentials.
"""

import base64
import configparser
import os
import socket
import sqlite3
import urllib.request
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit

from fedcome_ray.errors import UserError, without_passwords

SQLITE = "sqlite:///"
SERVERS = ("http://", "https://")
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Of the other databases that MLflow knows, unless the address names another."""
SECONDS = 10.0  # for an answer
OTHER_WAYS = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")
"""To get in that only MLflow's client knows."""
ALLOWED = (
    f"allowed are http(s)://HOST:PORT, sqlite:///FILE and the databases {', '.join(PORTS)} as "
    f"postgresql://USER:PASSWORD@HOST/NAME"
)


def check_uri(uri: str) -> None:
    """Refuse a store that does not answer, or does not let us in."""
    scheme, separator, rest = uri.partition("://")
    if uri.startswith(SERVERS):
        _check_server(uri)
    elif uri.startswith(SQLITE) and rest.strip("/"):
        _check_sqlite(uri)
    elif separator and scheme.split("+")[0] in PORTS:
        _check_database(uri)
    else:
        shown = without_passwords(uri)
        raise UserError(f"--tracking-uri: `{shown}` is not a URI of a store; {ALLOWED}")


def sqlite_file(uri: str) -> Path:
    return Path(uri.removeprefix(SQLITE))


def _check_server(uri: str) -> None:
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]  # the rest is no part of it for `urlopen`
    question = "api/2.0/mlflow/experiments/search?max_results=1"
    address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{question}"
    shown = without_passwords(uri)
    try:
        request = urllib.request.Request(address, headers=_authorization(uri))
        urllib.request.urlopen(request, timeout=SECONDS).close()  # nosec B310
    except HTTPError as error:
        error.close()
        if error.code in {401, 403} and any(map(os.environ.get, OTHER_WAYS)):
            return  # MLflow knows how to get in
        if error.code in {401, 403}:
            raise UserError(
                f"--tracking-uri: the MLflow server at `{shown}` lets nobody in without the right "
                f"name and password; give them in the environment, as MLFLOW_TRACKING_USERNAME "
                f"and MLFLOW_TRACKING_PASSWORD"
            ) from None
        raise UserError(f"--tracking-uri: no MLflow server answers at `{shown}`: {error}") from None
    except (URLError, OSError, ValueError, OverflowError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"--tracking-uri: no MLflow server answers at `{shown}`: {reason}"
        ) from None


def _authorization(uri: str) -> dict[str, str]:
    """The header that MLflow's client would send: an address with a name comes first."""
    own = urlsplit(uri)
    if own.username is not None:
        return {"Authorization": _basic(unquote(own.username), unquote(own.password or ""))}
    name, password = map(_noted, ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"))
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if name and password:
        return {"Authorization": _basic(name, password)}
    if token and not token.isprintable():  # or the error would show it
        raise UserError("MLFLOW_TRACKING_TOKEN: has a line break or the like")
    if token:
        return {"Authorization": f"Bearer {token}"}
    return {}


def _noted(variable: str) -> str | None:
    """Of the environment, or of the file that MLflow reads instead."""
    file = configparser.ConfigParser(interpolation=None)
    file.read(Path("~/.mlflow/credentials").expanduser())
    return os.environ.get(variable) or file.get("mlflow", variable.lower(), fallback=None)


def _basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def _check_sqlite(uri: str) -> None:
    file = sqlite_file(uri)
    if not file.exists():
        return
    try:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA schema_version")  # reads the header
    except sqlite3.Error as error:
        raise UserError(
            f"--tracking-uri: cannot use `{uri}`: {error}; move that file away: MLflow only "
            f"mirrors the folders of trials, and launching a grid again writes it anew"
        ) from None


def _check_database(uri: str) -> None:
    from sqlalchemy import create_engine  # MLflow's, but much quicker to import
    from sqlalchemy.engine import make_url

    try:
        url = make_url(uri)
        if url.host and not url.host.startswith("/"):  # drivers wait for minutes
            port = url.port or PORTS[url.get_backend_name()]
            socket.create_connection((url.host, port), timeout=SECONDS).close()
        engine = create_engine(url)
        try:
            engine.connect().close()
        finally:
            engine.dispose()
    except Exception as error:  # noqa: BLE001 - whatever its driver raises, or that there is none
        reason = without_passwords((str(error) or repr(error)).strip().splitlines()[0])
        raise UserError(
            f"--tracking-uri: cannot use `{without_passwords(uri)}`: {reason}"
        ) from None
