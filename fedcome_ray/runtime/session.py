"""The session of a private Ray: a folder of sockets, logs and what did not fit into memory.

Ray leaves it behind. Here it goes with the Ray, unless one of its processes died by itself: then
its logs may say why, and it stays.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from ray._common.utils import get_default_ray_temp_dir
from ray._private import ray_constants, worker
from ray._private.node import Node as RayNode

from fedcome_ray.runtime import scratch
from fedcome_ray.runtime.replacing import replaced


@contextmanager
def owned() -> Iterator[None]:
    """Let the session of a Ray that is started meanwhile be this process's.

    What dead processes of ours have left is removed.
    """
    scratch.sweep()
    scratch.sweep_sessions(_parent())
    make_folders: Callable[..., Any] = RayNode._init_temp
    nodes: list[RayNode] = []

    def make(node: RayNode, *arguments: Any) -> None:
        make_folders(node, *arguments)
        scratch.own(_folder_of(node))
        nodes.append(node)

    try:
        with replaced(RayNode, "_init_temp", make):
            yield
    except BaseException as error:
        is_refused = isinstance(error, ValueError) or not isinstance(error, Exception)
        for node in nodes:
            if is_refused:
                discard(node)
            else:  # it may name files there
                scratch.keep(_folder_of(node))
        raise


@contextmanager
def ending(*, is_told: bool = False) -> Iterator[None]:
    """Remove the session of the Ray that is stopped meanwhile, if it is ours.

    Unless it is to be kept; but where all processes were told to stop, their deaths say nothing.
    """
    node: Any = worker._global_node
    if node is None or not scratch.is_own(_folder_of(node)):
        yield
        return
    with _without_workers(node):
        yield
    if is_told or not scratch.is_kept(_folder_of(node)):
        _remove(node)
    else:
        scratch.release(_folder_of(node))


def discard(node: RayNode) -> None:
    """End what there is of a private Ray, with its session."""
    with _without_workers(node):
        node.kill_all_processes(check_alive=False)
    _remove(node)


def end(*, is_told: bool) -> None:
    """Discard the private Ray of a process that is about to end, if it was told to.

    Else Ray has ended without being told, and its session stays.
    """
    node: Any = worker._global_node
    if node is None or not scratch.is_own(_folder_of(node)):
        return
    if is_told:
        discard(node)
    else:
        keep()


def expect_the_end() -> None:
    """All processes were told to stop: without its raylet, Ray may end this one before `end`."""
    scratch.sweep_afterwards(_parent())


def keep() -> None:
    """Let the session of the Ray that this process works on stay, if it is a private one."""
    node: Any = worker._global_node
    if node is not None:
        scratch.keep(_folder_of(node))


def _parent() -> Path:
    return Path(get_default_ray_temp_dir())


def _folder_of(node: RayNode) -> Path:
    return Path(node.get_session_dir_path())


@contextmanager
def _without_workers(node: RayNode) -> Iterator[None]:
    """Let the workers of a node that is ended meanwhile be gone afterwards.

    Without their raylet they can do nothing; but one that is about to begin would open a log.
    """
    workers: list[psutil.Process] = []
    with suppress(KeyError, psutil.Error):
        (raylet,) = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET]
        workers = psutil.Process(raylet.process.pid).children()
    yield
    for process in workers:
        with suppress(psutil.Error):
            process.kill()


def _remove(node: RayNode) -> None:
    folder = _folder_of(node)
    scratch.remove(folder)
    scratch.sweep_sessions(folder.parent)  # for the link to it
    scratch.sweep()  # what its processes had
