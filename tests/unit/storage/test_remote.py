"""A place in object storage: the same on a real S3 server and in a folder."""

import pickle
import sys
import time
from pathlib import Path

import pytest

from fedcome_ray.errors import AwayError, UserError
from fedcome_ray.storage import remote as remote_module
from fedcome_ray.storage.remote import Remote, is_address, patiently
from tests.s3 import SECRET, Server


@pytest.fixture(params=["s3", "file"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    if request.param == "s3":
        request.getfixturevalue("s3")
        return Remote(f"s3://bucket/{tmp_path.name}")
    return Remote((tmp_path / "there").as_uri())


def test_an_address_is_told_from_a_folder() -> None:
    assert is_address("s3://bucket/prefix")
    assert not is_address("results")
    assert not is_address("/shared/s3:/x")


def test_files_go_there_and_back(remote: Remote, tmp_path: Path) -> None:
    remote.check()
    assert remote.marks() == {}
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"22")
    remote.put({"a/one": tmp_path / "one", "b/two": tmp_path / "two"})
    assert remote.marks().keys() == {"a/one", "b/two"}
    assert remote.marks("b").keys() == {"b/two"}
    assert remote.at("a").marks().keys() == {"one"}
    remote.get({"a/one": tmp_path / "back" / "1", "b/two": tmp_path / "back" / "2"})
    assert (tmp_path / "back" / "2").read_bytes() == b"22"
    remote.delete(["a/one", "never/there"])
    assert remote.marks().keys() == {"b/two"}


def test_a_mark_changes_with_the_content(remote: Remote) -> None:
    remote.write("name", b"one")
    before = remote.marks()
    assert remote.marks() == before
    remote.write("name", b"another")  # some systems have clocks of ten milliseconds
    assert remote.marks() != before


def test_what_is_there_is_not_created_again(remote: Remote) -> None:
    assert remote.read("name") is None
    assert remote.create("name", b"mine")
    assert not remote.create("name", b"theirs")
    assert remote.create("name", b"mine")  # an attempt whose answer was lost
    assert remote.read("name") == b"mine"


def test_others_connect_by_themselves(remote: Remote) -> None:
    remote.write("name", b"content")
    sent = pickle.dumps(remote)
    assert len(sent) < 300
    assert SECRET.encode() not in sent
    assert pickle.loads(sent).read("name") == b"content"


def test_an_address_that_cannot_be_used_is_refused_in_a_line(
    s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"--output: cannot use `s3://none/x`: .* does not exist$"):
        Remote("s3://none/x").check()
    with pytest.raises(UserError, match=r"does not exist$"):
        Remote("s3://none/x").check(writable=False)
    with pytest.raises(UserError, match="--output: cannot use `no://where`: Protocol not known"):
        Remote("no://where").check()
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UserError, match=r"Unable to locate credentials$"):
        Remote("s3://bucket/x").check()


@pytest.mark.parametrize(
    ("address", "library", "extra"),
    [("s3://bucket/prefix", "s3fs", "s3"), ("gs://bucket/prefix", "gcsfs", "gcs")],
)
def test_a_missing_library_is_named(
    address: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.registry import _registry

    monkeypatch.delitem(_registry, address.partition(":")[0], raising=False)  # in a new process
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=rf"pip install 'fedcome-ray\[{extra}\]"):
        Remote(address).check()


def test_a_server_that_is_away_is_waited_for(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote(f"s3://bucket/{tmp_path.name}")
    remote.write("name", b"content")
    monkeypatch.setattr(remote_module, "PAUSE_SECONDS", 0.1)
    with s3.away():
        with pytest.raises(AwayError, match=r"`s3://bucket/.*: Could not connect") as told:
            remote.read("name")
        monkeypatch.setattr(remote_module, "PATIENCE_SECONDS", 0.5)
        with pytest.raises(AwayError):
            patiently(lambda: remote.read("name"))
    assert SECRET not in str(told.value)
    monkeypatch.setattr(remote_module, "PATIENCE_SECONDS", 60)
    begun = time.monotonic()

    def read() -> bytes | None:
        if time.monotonic() < begun + 0.3:
            raise AwayError("not yet")
        return remote.read("name")

    assert patiently(read) == b"content"
