"""Downloads that go on where they were interrupted, checked before they count."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedcome_ray.errors import DataError

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without an answer

Progress = Callable[[int, int], None]  # bytes here, bytes in all (0: not known)


class Download(NamedTuple):
    """A file to get."""

    urls: Sequence[str]  # mirrors, in the order of trying
    path: Path
    md5: str


def fetch(download: Download, progress: Progress) -> None:
    """Get a file unless it is there; the file appears only when it is whole."""
    if download.path.is_file() and _md5(download.path) == download.md5:
        return
    unfinished = download.path.with_name(f"{download.path.name}.part")
    failures = []
    for url in download.urls:
        try:
            _receive(url, unfinished, progress)
            if _md5(unfinished) == download.md5:
                unfinished.replace(download.path)
                return
            unfinished.unlink()
            failures.append(f"{url}: wrong checksum")
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
    raise DataError(
        "\n  ".join(
            [
                f"cannot download {download.path.name}",
                *failures,
                f"run the command again to go on, or put the file into {download.path.parent}",
            ]
        )
    )


def _receive(url: str, unfinished: Path, progress: Progress) -> None:
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    here = unfinished.stat().st_size if unfinished.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={here}-"} if here else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)  # nosec B310
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # everything is here already: its checksum decides
        raise
    with response, unfinished.open("ab") as file:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:  # the server sends all of it again
            file.truncate(0)
            here = 0
        length = int(response.headers.get("Content-Length", 0))
        total = here + length if length else 0
        while chunk := response.read(CHUNK):
            here += file.write(chunk)
            progress(here, total)
    if here < total:
        raise OSError(f"the connection closed after {here} of {total} bytes")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
