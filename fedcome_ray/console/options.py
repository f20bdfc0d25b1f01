"""What a user wants of the machine and of the disk, each as one record that is passed on whole.

On processors none of it changes a result, and on GPUs no more than rounding.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedcome_ray.errors import UserError, cut
from fedcome_ray.storage.remote import Remote
from fedcome_ray.storage.working_copy import WorkingCopy

PRIVATE = ("num_cpus", "num_gpus", "object_store_memory")
LEAST_STORE = 75 * 2**20  # that Ray starts with

MAX_SHARDS = 10_000  # each is a process


@dataclass(frozen=True)
class MachineOptions:
    """Wishes for how trials are laid out; what is None is decided by `runtime.placement`."""

    address: str | None = None  # of a Ray cluster; None: a private one
    num_cpus: int | None = None  # of a private one, as the next two
    num_gpus: int | None = None
    object_store_memory: int | None = None  # bytes
    num_shards: int | None = None
    cpus_per_shard: float | None = None
    gpus_per_shard: float | None = None
    memory_per_shard: int | None = None  # bytes
    max_concurrent: int | None = None
    device: Literal["auto", "cpu", "gpu"] = "auto"

    @property
    def private(self) -> dict[str, int]:
        """What the user wants a private Ray to have, by the names of Ray."""
        wishes = {name: getattr(self, name) for name in PRIVATE}
        return {name: wish for name, wish in wishes.items() if wish is not None}

    @property
    def wants_gpus(self) -> bool:
        """Whether the user insists on them."""
        return self.device == "gpu" or bool(self.gpus_per_shard)

    @property
    def refuses_gpus(self) -> bool:
        """Whether the user wants them left alone."""
        return self.device == "cpu" or self.gpus_per_shard == 0

    def __post_init__(self) -> None:
        self._check_gpus()
        self._check_private()
        for name in ("num_cpus", "num_shards", "max_concurrent"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise UserError(f"{name}: expected a whole number of at least 1, got `{value}`")
        if self.num_shards is not None and self.num_shards > MAX_SHARDS:
            raise UserError(f"num_shards: at most {MAX_SHARDS:,}, got `{self.num_shards}`")

    def _check_private(self) -> None:
        if self.private and self.address is not None:
            raise UserError(
                f"{', '.join(self.private)}: only a private Ray is given them, and with an address "
                f"there is none; got the address `{cut(self.address)}`"
            )
        if self.num_gpus is not None and self.num_gpus < 0:
            raise UserError(
                f"num_gpus: expected a whole number of at least 0, got `{self.num_gpus}`"
            )
        store = self.object_store_memory
        if store is not None and store < LEAST_STORE:
            raise UserError(
                f"object_store_memory: expected at least {LEAST_STORE >> 20} MB, got "
                f"{store >> 20} MB"
            )

    def _check_gpus(self) -> None:
        if self.device not in ("auto", "cpu", "gpu"):
            raise UserError(f"device: expected `auto`, `cpu` or `gpu`, got `{self.device}`")
        share = self.gpus_per_shard
        if share is not None and not _is_whole_part(share):
            raise UserError(
                f"gpus_per_shard: expected 0, 1 or an equal part of 1 such as 0.5, 0.33 or 0.25, "
                f"got `{share:g}`: a shard computes on one GPU, and what is left of it is lost"
            )
        if share is not None and (share == 0) != (self.device == "cpu") and self.device != "auto":
            raise UserError(
                f"device: `{self.device}` contradicts gpus_per_shard, which is `{share:g}`"
            )


def _is_whole_part(share: float) -> bool:
    """Whether it is 0 or 1/k, give or take what people round: 0.33 and 0.333 are thirds."""
    return share == 0 or (0 < share <= 1 and 0.95 <= share * round(1 / share) <= 1 + 1e-9)


@dataclass(frozen=True)
class Locations:
    """Where data and code come from, and where results go."""

    output: Path
    tracking_uri: str  # of MLflow
    data_dir: Path | None = None
    plugins: tuple[str, ...] = ()
    storage: Remote | None = None
    """Where results are kept, if not in a folder; `output` is its working copy then."""
    log_every: int | None = None
    """Which rounds go to MLflow, beside the last; None: as before, at first all."""

    @property
    def working_copy(self) -> WorkingCopy | None:
        return None if self.storage is None else WorkingCopy(self.storage, self.output)

    def shown(self, path: Path) -> str:
        """How people are told of a file or folder in the output."""
        if self.storage is None or not path.is_relative_to(self.output):
            return str(path)
        name = path.relative_to(self.output).as_posix()
        return self.storage.address if name == "." else f"{self.storage.address}/{name}"
