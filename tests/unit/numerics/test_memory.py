"""What fits into this machine's memory."""

from pathlib import Path

import psutil
import pytest

from fedcome_ray.errors import ConfigError
from fedcome_ray.numerics import memory


def test_the_memory_is_what_the_system_says() -> None:
    machine = min([psutil.virtual_memory().total, *memory.limits()])
    assert memory.total_bytes() == pytest.approx(machine, rel=0.01)


def test_control_groups_limit_it(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/old\n0::/job/step\n")
    limits = {"job": "8000", "job/step": "max", "memory/old": "9000"}
    for folder, limit in limits.items():
        name = "memory.limit_in_bytes" if "old" in folder else "memory.max"
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup" / folder / name).write_text(f"{limit}\n")
    assert sorted(memory.limits(tmp_path)) == [8000, 9000]


def test_what_is_larger_than_the_machine_is_refused_with_the_numbers() -> None:
    memory.check_fits(memory.total_bytes(), "rounds")
    with pytest.raises(ConfigError, match=r"rounds: it would take about [\d,]+ GB .* has \d+ GB"):
        memory.check_fits(2 * memory.total_bytes(), "rounds")
