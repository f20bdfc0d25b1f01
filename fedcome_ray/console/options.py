"""What a user wants of the machine and of the disk, each as one record that is passed on whole.

None of it changes a result.
"""

from dataclasses import dataclass
from pathlib import Path

from fedcome_ray.errors import UserError


@dataclass(frozen=True)
class MachineOptions:
    """Wishes for how trials are laid out; what is None is decided by `runtime.placement`."""

    address: str | None = None  # of a Ray cluster; None: a private one
    num_shards: int | None = None
    cpus_per_shard: float | None = None
    gpus_per_shard: float | None = None
    memory_per_shard: int | None = None  # bytes
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_shards", "max_concurrent"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise UserError(f"{name}: expected a whole number of at least 1, got `{value}`")


@dataclass(frozen=True)
class Locations:
    """Where data and code come from, and where results go."""

    output: Path
    tracking_uri: str  # of MLflow
    data_dir: Path | None = None
    plugins: tuple[str, ...] = ()
