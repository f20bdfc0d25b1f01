"""How many processors this process may use, by whoever limits it."""

import os
from pathlib import Path

import pytest

from fedcome_ray.errors import UserError
from fedcome_ray.numerics.processors import usable_cpus


@pytest.fixture(autouse=True)
def bound_to(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Sixteen processors that the system would run this process on, or what a test leaves."""
    allowed = set(range(16))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return allowed


def group(root: Path, table: str, **files: str) -> Path:
    """A system whose control groups are so; a file `a__b` is in the folder `a`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(table)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/").replace("cpu_", "cpu.")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_without_limits_it_is_those_that_the_system_runs_it_on(tmp_path: Path) -> None:
    assert usable_cpus({}, tmp_path) == 16


def test_a_process_that_is_bound_to_some_uses_these(tmp_path: Path, bound_to: set[int]) -> None:
    bound_to.difference_update(range(4, 16))
    assert usable_cpus({}, tmp_path) == 4


def test_a_system_that_binds_nothing_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus({}, tmp_path) == 64


@pytest.mark.parametrize(
    ("variables", "cpus"),
    [
        ({"SLURM_CPUS_PER_TASK": "3", "SLURM_CPUS_ON_NODE": "12"}, 3),
        ({"SLURM_CPUS_ON_NODE": "12"}, 12),
        ({"SLURM_CPUS_PER_TASK": "", "SLURM_CPUS_ON_NODE": "40"}, 16),
    ],
)
def test_slurm_gives_a_task_or_a_job_some(
    tmp_path: Path, variables: dict[str, str], cpus: int
) -> None:
    assert usable_cpus(variables, tmp_path) == cpus


@pytest.mark.parametrize("value", ["8(x2)", "0", "-1", "²"])
def test_what_slurm_never_says_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserError, match="SLURM_CPUS_ON_NODE: expected a whole number"):
        usable_cpus({"SLURM_CPUS_ON_NODE": value}, tmp_path)


@pytest.mark.parametrize(
    ("limit", "cpus"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 16)]
)
def test_a_container_pays_for_some(tmp_path: Path, limit: str, cpus: int) -> None:
    assert usable_cpus({}, group(tmp_path, "0::/\n", cpu_max=limit)) == cpus


def test_the_groups_around_the_own_one_limit_it_too(tmp_path: Path) -> None:
    limits = {"job__cpu_max": "400000 100000", "job__step__cpu_max": "max 100000"}
    assert usable_cpus({}, group(tmp_path, "0::/job/step\n", **limits)) == 4


def test_a_group_that_the_container_does_not_show_is_its_outermost(tmp_path: Path) -> None:
    assert usable_cpus({}, group(tmp_path, "0::/host/pod\n", cpu_max="300000 100000")) == 3


@pytest.mark.parametrize(("quota", "cpus"), [("200000", 2), ("-1", 16)])
def test_the_first_version_of_control_groups(tmp_path: Path, quota: str, cpus: int) -> None:
    files = {"cpu__own__cpu_cfs_quota_us": quota, "cpu__own__cpu_cfs_period_us": "100000\n"}
    table = "3:memory:/other\n2:cpu,cpuacct:/own\n"
    assert usable_cpus({}, group(tmp_path, table, **files)) == cpus


def test_the_least_counts(tmp_path: Path, bound_to: set[int]) -> None:
    bound_to.difference_update(range(8, 16))
    root = group(tmp_path, "0::/\n", cpu_max="600000 100000")
    assert usable_cpus({"SLURM_CPUS_PER_TASK": "7"}, root) == 6
