"""What fits into this machine's memory."""

import psutil
import pytest

from fedcome_ray.errors import ConfigError
from fedcome_ray.numerics import memory


def test_the_memory_is_what_the_system_says() -> None:
    assert memory.total_bytes() == pytest.approx(psutil.virtual_memory().total, rel=0.01)


def test_what_is_larger_than_the_machine_is_refused_with_the_numbers() -> None:
    memory.check_fits(memory.total_bytes(), "rounds")
    with pytest.raises(ConfigError, match=r"rounds: it would take about [\d,]+ GB .* has \d+ GB"):
        memory.check_fits(2 * memory.total_bytes(), "rounds")
