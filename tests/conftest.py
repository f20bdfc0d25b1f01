from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rich.console import Console

# One thread, as in every process of ours: on shared cores two can be many times slower, and the
# promise of equal bits is made for one.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A private Ray for all tests that need one in this process."""
    from fedcome_ray import cli

    cli.quiet_ray()
    from fedcome_ray import cluster

    with cluster.connected(None, Console(stderr=True)):
        yield cluster
