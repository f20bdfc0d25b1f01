"""What users want of the machine."""

import pytest

from fedcome_ray.console.options import MachineOptions
from fedcome_ray.errors import UserError


def test_a_private_ray_is_given_what_is_wished_and_nothing_else() -> None:
    assert MachineOptions().private == {}
    wishes = {"num_cpus": 2, "num_gpus": 0, "object_store_memory": 2**30}
    assert MachineOptions(**wishes).private == wishes


@pytest.mark.parametrize("wish", ["num_cpus", "num_gpus", "object_store_memory"])
def test_a_cluster_that_is_there_has_what_it_has(wish: str) -> None:
    with pytest.raises(UserError, match=f"{wish}: only a private Ray .* address `h:6379`"):
        MachineOptions("h:6379", **{wish: 2**30})


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"num_cpus": 0}, "num_cpus: expected a whole number of at least 1, got `0`"),
        ({"num_gpus": -1}, "num_gpus: expected a whole number of at least 0, got `-1`"),
        ({"object_store_memory": 2**20}, "object_store_memory: expected at least 75 MB, got 1 MB"),
    ],
)
def test_what_ray_could_not_start_with_is_refused(wish: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        MachineOptions(**wish)
