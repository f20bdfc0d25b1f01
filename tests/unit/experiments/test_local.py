import numpy as np
import pytest

from fedcome_ray.experiments.local import LocalConfig
from fedcome_ray.experiments.trial import parse_trial


def test_full_means_one_batch_of_all_examples() -> None:
    assert parse_trial({"local": {"batch_size": "full"}}).local.batch_size is None


@pytest.mark.parametrize(
    ("settings", "num_steps", "num_seen"),
    [
        ({"epochs": 2, "batch_size": 50}, [2, 2, 4], [20, 100, 120]),
        ({"epochs": 3, "batch_size": "full"}, [3, 3, 3], [30, 150, 180]),
        ({"steps": 4, "batch_size": 50}, [4, 4, 4], [40, 200, 120]),
        ({"steps": 4, "batch_size": "full"}, [4, 4, 4], [40, 200, 240]),
    ],
)
def test_the_length_is_given_by_epochs_or_by_steps(settings, num_steps, num_seen) -> None:
    local, sizes = LocalConfig(**settings), np.array([10, 50, 60])
    assert local.num_steps(sizes).tolist() == num_steps
    assert local.num_seen(sizes).tolist() == num_seen


def test_the_first_round_is_undecayed() -> None:
    local = LocalConfig(lr=0.1, lr_decay=0.5)
    assert [local.lr_at(n) for n in range(3)] == [0.1, 0.05, 0.025]
