from collections.abc import Iterator

import pytest
from rich.console import Console

from fedcome_ray.numerics.device import prepare_process
from tests.s3 import Server, serving

prepare_process()  # as every process of ours: the promise of equal bits is made for one thread


@pytest.fixture(scope="session")
def cluster() -> Iterator[dict[str, float]]:
    """A private Ray for all tests that need one in this process."""
    from fedcome_ray.console.options import MachineOptions
    from fedcome_ray.runtime.connection import SHARDS, connected

    with connected(MachineOptions(), Console(stderr=True), SHARDS) as resources:
        yield resources


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An S3 server with the bucket `bucket`."""
    with serving(tmp_path_factory.mktemp("s3"), "bucket") as server:
        yield server
