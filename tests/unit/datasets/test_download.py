import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedcome_ray.datasets.download import Download, fetch
from fedcome_ray.errors import DataError

CONTENT = np.random.default_rng(0).bytes(700_000)


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT: `/file` from any place in it, `/whole` only whole, `/cut` half of it."""

    def do_GET(self) -> None:
        self.server.requests.append(self.headers.get("Range"))
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if self.path == "/none":
            return self.send_error(404)
        if self.path == "/whole":
            start, asked = 0, None
        if start >= len(CONTENT):
            return self.send_error(416)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        end = len(CONTENT) // 2 if self.path == "/cut" else None
        self.wfile.write(CONTENT[start:end])
        return None

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def download(server, path, *pages, content=CONTENT) -> Download:
    urls = [f"http://127.0.0.1:{server.server_port}/{page}" for page in pages]
    return Download(urls, path, hashlib.md5(content).hexdigest())


def test_a_file_is_downloaded_with_progress(server, tmp_path) -> None:
    seen = []
    path = tmp_path / "new" / "file"
    fetch(download(server, path, "file"), lambda here, total: seen.append((here, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_not_downloaded(server, tmp_path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    fetch(download(server, tmp_path / "file", "file"), lambda *_: None)
    assert server.requests == []


@pytest.mark.parametrize("page", ["file", "whole"])
def test_an_interrupted_download_goes_on(server, tmp_path, page) -> None:
    with pytest.raises(DataError, match="the connection closed after 350000 of 700000 bytes"):
        fetch(download(server, tmp_path / "file", "cut"), lambda *_: None)
    assert not (tmp_path / "file").exists()
    fetch(download(server, tmp_path / "file", page), lambda *_: None)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=350000-"]


def test_a_complete_part_is_not_downloaded_again(server, tmp_path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(download(server, tmp_path / "file", "file"), lambda *_: None)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_the_next_mirror_is_tried(server, tmp_path) -> None:
    fetch(download(server, tmp_path / "file", "none", "file"), lambda *_: None)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path) -> None:
    with pytest.raises(DataError, match=r"cannot download file[\s\S]*wrong checksum"):
        fetch(download(server, tmp_path / "file", "file", content=b"other"), lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_file_is_said(server, tmp_path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(DataError, match=r"cannot download file\n.*directory"):
        fetch(download(server, tmp_path / "file", "file"), lambda *_: None)


def test_no_network_is_one_clear_message(tmp_path) -> None:
    nowhere = Download(["http://127.0.0.1:9/data.gz"], tmp_path / "data.gz", "0")
    with pytest.raises(
        DataError, match=r"cannot download data.gz[\s\S]*put the file into"
    ) as error:
        fetch(nowhere, lambda *_: None)
    assert str(tmp_path) in str(error.value)
