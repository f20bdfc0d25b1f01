from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from fedcome_ray.numerics.device import prepare_process

prepare_process()  # as every process of ours: the promise of equal bits is made for one thread


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A private Ray for all tests that need one in this process."""
    from fedcome_ray.console import cli_old as cli

    cli.quiet_ray()
    from fedcome_ray.runtime import cluster_old as cluster

    with cluster.connected(None, Console(stderr=True)):
        yield cluster
