"""One launch at a time writes to a storage, without locks or clocks."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcome_ray.errors import FedcomeError, LostError, UserError
from fedcome_ray.storage import lease as leases
from fedcome_ray.storage import remote as remote_module
from fedcome_ray.storage.lease import Lease, held
from fedcome_ray.storage.remote import Remote
from tests.s3 import Server

Folder = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.2)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other launch lives; else a busy machine might take it for dead."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 1.0)


@pytest.fixture
def remote(s3: Server, tmp_path: Path) -> Remote:
    return Remote(f"s3://bucket/{tmp_path.name}")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A working copy, as each machine has its own."""

    def folder(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        return tmp_path / name

    return folder


def quietly(text: str) -> None:
    pass


def die(remote: Remote, folder: Path) -> Lease:
    """Leave a lease as a killed launch does."""
    with held(remote, folder, quietly) as lease:
        name = leases._name(lease.number)
        left = remote.read(name)
    assert left is not None
    remote.write(name, json.dumps({**json.loads(left), "is_over": False}).encode())
    return lease


def test_launches_follow_one_another(remote: Remote, folder: Folder) -> None:
    with held(remote, folder("one"), quietly) as first:
        first.check()
    with held(remote, folder("two"), quietly) as second:
        second.check()
        with pytest.raises(LostError):
            first.check()
    assert (first.number, second.number) == (1, 2)
    assert len(remote.marks(leases.FOLDER)) == 1  # the others are tidied away


def test_the_second_is_told_who_is_at_work(remote: Remote, folder: Folder) -> None:
    said: list[str] = []
    with held(remote, folder("one"), quietly) as first:
        refused = pytest.raises(
            FedcomeError, match=f"another launch is at work in s3://.*: process {os.getpid()} on "
        )
        with refused, held(remote, folder("two"), said.append):
            pass
        first.check()
    assert "sign of life" in said[0]


@pytest.mark.usefixtures("_impatient")
def test_a_dead_launch_is_taken_over_after_a_while(remote: Remote, folder: Folder) -> None:
    dead = die(remote, folder("one"))
    with held(remote, folder("two"), quietly) as lease:
        lease.check()
        with pytest.raises(LostError, match="another launch has taken over, process"):
            dead.check()


def test_a_dead_launch_of_the_same_copy_is_taken_over_at_once(
    remote: Remote, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = die(remote, folder("one"))
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3600.0)
    with held(remote, folder("one"), quietly) as lease:
        assert lease.number == dead.number + 1


def test_only_one_of_several_gets_in(remote: Remote, folder: Folder) -> None:
    inside: list[int] = []
    refused: list[str] = []
    gate, is_over = threading.Barrier(4), threading.Event()

    def launch(number: int) -> None:
        gate.wait()
        try:
            with held(remote, folder(f"copy {number}"), quietly):
                inside.append(number)
                is_over.wait(60)
        except FedcomeError as error:
            refused.append(str(error))
        if len(refused) == 3:
            is_over.set()

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(inside), len(refused)) == (1, 3)


def test_a_launch_that_was_taken_for_dead_stops(remote: Remote, folder: Folder) -> None:
    told = pytest.raises(LostError, match="another launch has taken over")
    with told, held(remote, folder("one"), quietly) as lease:
        content = leases._read(remote, lease.number)
        remote.create(leases._name(lease.number + 1), json.dumps(content).encode())
        threading.Event().wait(60)  # until it is interrupted


def test_a_server_that_comes_back_is_forgiven(s3: Server, remote: Remote, folder: Folder) -> None:
    said: list[str] = []
    news = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        news.set()

    with held(remote, folder("one"), say) as lease:
        with s3.away():
            assert news.wait(60)
            news.clear()
        assert news.wait(60)
        lease.check()
    assert "trials go on, and it is tried again" in said[0]
    assert said[1].endswith("answers again")


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_stays_away_ends_the_launch(
    s3: Server, remote: Remote, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "PATIENCE_SECONDS", 0.0)
    told = pytest.raises(FedcomeError, match=r"Could not connect .*; not for \d+ seconds")
    with told, held(remote, folder("one"), quietly), s3.away():
        threading.Event().wait(60)


def test_a_store_without_conditional_writes_is_refused(
    remote: Remote, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(remote: Remote, name: str, content: bytes) -> bool:
        remote.write(name, content)
        return True

    monkeypatch.setattr(Remote, "create", overwrite)
    with pytest.raises(UserError, match="If-None-Match"), held(remote, folder("one"), quietly):
        pass
    assert remote.marks() == {}
